// OwnProcess: which process an object belongs to. A child of fork() has the object, but none of the
// threads that it counts on. Any thread.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <string>

#include "runtime/status.h"

namespace dunlin::torch_backend {

class OwnProcess {
 public:
  bool is_here() const { return getpid() == process_; }
  // kClosed in a child: `what` ("the group") is the parent's.
  Status check(const char* what) const {
    if (is_here()) return Status::ok();
    return {Code::kClosed, std::string(what) + " is the parent's: after fork(), make a new group"};
  }

 private:
  pid_t process_ = getpid();
};

}  // namespace dunlin::torch_backend
