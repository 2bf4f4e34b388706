// OwnProcess: the process that an object belongs to. A child of fork() has the object, but none of
// the threads that it relies on. Threads: any.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <string>

#include "runtime/status.h"

namespace dunlin::torch_backend {

// The error in a child for an object ("the group") of its parent.
inline Status belongs_to_parent(const char* what) {
  const std::string which(what);
  return {Code::kClosed, which + " belongs to the parent process: after fork(), make a new group"};
}

class OwnProcess {
 public:
  bool is_here() const { return getpid() == process_; }
  // kClosed in a child.
  Status check(const char* what) const {
    return is_here() ? Status::ok() : belongs_to_parent(what);
  }

 private:
  pid_t process_ = getpid();
};

}  // namespace dunlin::torch_backend
