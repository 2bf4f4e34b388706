// UninheritedFd owns a file descriptor that a child of fork() does not keep open. O_CLOEXEC closes
// a descriptor only in children that run another program. A child that goes on in this program,
// such as a data loader, would keep a connection open beyond the death of its parent, so that no
// peer would learn of it. In the child, the descriptor refers to /dev/null.
//
// It does not reach children of vfork(), posix_spawn(), _Fork() and clone(), which run no handlers
// of pthread_atfork(). Any thread; one at a time uses each object.
#pragma once

#include <utility>

#include "runtime/fd.h"

namespace dunlin {

class UninheritedFd {
 public:
  UninheritedFd() = default;
  explicit UninheritedFd(Fd fd);
  UninheritedFd(UninheritedFd&& other) noexcept = default;
  UninheritedFd& operator=(UninheritedFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::move(other.fd_);
    }
    return *this;
  }
  ~UninheritedFd() { reset(); }

  int get() const { return fd_.get(); }
  bool is_open() const { return fd_.is_open(); }
  void reset();

 private:
  Fd fd_;
};

}  // namespace dunlin
