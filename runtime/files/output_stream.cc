#include "runtime/files/output_stream.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "runtime/bytes.h"
#include "runtime/files/destination.h"

namespace dunlin {

Result<OutputStream> OutputStream::open(const std::string& path, Start start) {
  DUNLIN_ASSIGN(const auto to, files::Destination::find(path));
  const int flags = start == Start::kAppend ? O_APPEND : O_TRUNC;
  DUNLIN_ASSIGN(Fd fd, to.open(to.is_replaceable() ? flags | O_CREAT : 0));
  return OutputStream(path, std::move(fd));
}

Result<OutputStream> OutputStream::standard_output() {
  Fd fd(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
  if (!fd.is_open()) return Status::from_errno("standard output", errno);
  return OutputStream("standard output", std::move(fd));
}

Status OutputStream::write(std::string_view text) const {
  if (!fd_.is_open()) return Status::ok();
  return files::write_all(fd_.get(), as_bytes(text)).with_context(name_);
}

Status OutputStream::close() {
  if (!fd_.is_open()) return Status::ok();
  return files::close_checked(std::move(fd_)).with_context(name_);
}

}  // namespace dunlin
