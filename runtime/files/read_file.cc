#include "runtime/files/read_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>

namespace dunlin {

Result<Fd> open_input(const std::string& path) {
  // The opening of a FIFO would wait for a writer.
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.is_open()) return Status::from_errno(path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(path, errno);
  if (!S_ISREG(info.st_mode)) {
    return Status(Code::kInvalidArgument, fmt::format("{}: is not a regular file", path));
  }
  return fd;
}

Result<std::string> read_file(const std::string& path) {
  DUNLIN_ASSIGN(const Fd fd, open_input(path));
  std::string content;
  for (;;) {
    constexpr std::size_t kPiece = std::size_t{1} << 16;
    const std::size_t before = content.size();
    content.resize(before + kPiece);
    const ssize_t got = ::read(fd.get(), content.data() + before, kPiece);
    if (got < 0 && errno != EINTR) return Status::from_errno(path, errno);
    content.resize(before + static_cast<std::size_t>(got < 0 ? 0 : got));
    if (got == 0) return content;
  }
}

}  // namespace dunlin
