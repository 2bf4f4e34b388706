#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <utility>

#include "runtime/files/destination.h"

namespace dunlin::files {
namespace {

// While it exists, a write of this thread to a pipe without a reader fails with EPIPE and raises no
// signal.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;
  ~NoSigpipe() {
    constexpr timespec kNow{};
    while (!was_pending_ && sigtimedwait(&sigpipe_, nullptr, &kNow) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  bool was_pending_;
  sigset_t sigpipe_;
  sigset_t before_;
};

}  // namespace

Status write_all(int fd, std::span<const std::byte> bytes) {
  const NoSigpipe guard;
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    } else if (written == 0) {
      return Status::from_errno("write", EIO);
    } else if (errno == EAGAIN) {
      pollfd waited{fd, POLLOUT, 0};
      if (::poll(&waited, 1, -1) < 0 && errno != EINTR) return Status::from_errno("poll", errno);
    } else if (errno != EINTR) {
      return Status::from_errno("write", errno);
    }
  }
  return Status::ok();
}

Status close_checked(Fd fd) {
  // A file system reports at every close of an open file, so that of a copy of the descriptor will
  // do.
  const int copy = ::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return Status::from_errno("dup", errno);
  return ::close(copy) == 0 ? Status::ok() : Status::from_errno("close", errno);
}

}  // namespace dunlin::files
