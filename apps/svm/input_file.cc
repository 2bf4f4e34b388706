#include "apps/svm/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "apps/svm/xz.h"
#include "runtime/fd.h"

namespace dunlin::svm {
namespace {

Status check_unpacked(const std::string& path, std::string_view bytes) {
  for (const auto& [magic, name] : {std::pair{"\x1F\x8B", "gzip"}, {"BZh", "bzip2"}}) {
    if (bytes.starts_with(magic)) {
      return {Code::kInvalidArgument, fmt::format("{}: is packed with {}: unpack it", path, name)};
    }
  }
  return Status::ok();
}

}  // namespace

Result<InputFile> InputFile::open(const std::string& path) {
  InputFile file;
  DUNLIN_TRY(file.map(path));
  if (!is_xz(file.bytes())) {
    DUNLIN_TRY(check_unpacked(path, file.bytes()));
    return file;
  }
  auto unpacked = unpack_xz(file.bytes());
  if (!unpacked) return std::move(unpacked).status().with_context(path);
  InputFile result;
  result.unpacked_ = std::move(unpacked).value();
  return result;
}

Status InputFile::map(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return Status::from_errno(path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(path, errno);
  if (!S_ISREG(info.st_mode)) {
    return {Code::kInvalidArgument, path + ": is not a regular file"};
  }
  if (info.st_size == 0) return Status::ok();  // nothing can be mapped
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
