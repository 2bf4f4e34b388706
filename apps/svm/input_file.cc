#include "apps/svm/input_file.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "apps/svm/gzip.h"
#include "apps/svm/xz.h"
#include "runtime/files/read_file.h"

namespace dunlin::svm {
namespace {

Status check_unpacked(const std::string& path, std::string_view bytes) {
  if (!bytes.starts_with("BZh")) return Status::ok();
  return {Code::kInvalidArgument, path + ": is packed with bzip2: unpack it"};
}

}  // namespace

Result<InputFile> InputFile::open(const std::string& path) {
  InputFile file;
  DUNLIN_TRY(file.map(path));
  const bool is_packed_with_xz = is_xz(file.bytes());
  if (!is_packed_with_xz && !is_gzip(file.bytes())) {
    DUNLIN_TRY(check_unpacked(path, file.bytes()));
    return file;
  }
  auto unpacked = is_packed_with_xz ? unpack_xz(file.bytes()) : unpack_gzip(file.bytes());
  if (!unpacked) return std::move(unpacked).status().with_context(path);
  InputFile result;
  result.unpacked_ = std::move(unpacked).value();
  return result;
}

Status InputFile::map(const std::string& path) {
  DUNLIN_ASSIGN(const Fd fd, open_input(path));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(path, errno);
  if (info.st_size == 0) return Status::ok();  // an empty file cannot be mapped
  const auto size = static_cast<std::size_t>(info.st_size);
  void* mapping = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (mapping == MAP_FAILED) return Status::from_errno(path, errno);
  mapping_ = static_cast<const char*>(mapping);
  mapped_size_ = size;
  return Status::ok();
}

InputFile::InputFile(InputFile&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_size_(std::exchange(other.mapped_size_, 0)),
      unpacked_(std::move(other.unpacked_)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_size_, other.mapped_size_);
  std::swap(unpacked_, other.unpacked_);
  return *this;
}

InputFile::~InputFile() {
  if (mapping_ != nullptr) ::munmap(const_cast<char*>(mapping_), mapped_size_);
}

}  // namespace dunlin::svm
