#include "apps/svm/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "runtime/fd.h"

namespace dunlin::svm {
namespace {

Status write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Status::from_errno("write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return Status::ok();
}

Status write_durably(const std::string& path, std::span<const std::byte> bytes) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.is_open()) return Status::from_errno("open", errno);
  DUNLIN_TRY(write_all(fd.get(), bytes));
  return ::fsync(fd.get()) == 0 ? Status::ok() : Status::from_errno("fsync", errno);
}

// Makes the renamed entry itself durable.
Status sync_directory_of(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string directory = parent.empty() ? std::string(".") : parent.string();
  const Fd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open()) return Status::from_errno("open " + directory, errno);
  return ::fsync(fd.get()) == 0 ? Status::ok() : Status::from_errno("fsync " + directory, errno);
}

}  // namespace

Status replace_file(const std::string& path, std::span<const std::byte> bytes) {
  const std::string partial = path + ".partial";
  Status status = write_durably(partial, bytes).with_context(partial);
  if (status && std::rename(partial.c_str(), path.c_str()) != 0) {
    status = Status::from_errno("rename " + partial + " to " + path, errno);
  }
  if (!status) {
    ::unlink(partial.c_str());
    return status;
  }
  return sync_directory_of(path);
}

}  // namespace dunlin::svm
