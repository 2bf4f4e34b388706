// OwnProcess: which process an object belongs to. A child of fork() has the object, but none of the
// threads that it counts on. Any thread.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <string>

#include "runtime/status.h"

namespace dunlin::torch_backend {

// What a child is told of what is its parent's ("the group").
inline Status a_parents(const char* what) {
  return {Code::kClosed, std::string(what) + " is the parent's: after fork(), make a new group"};
}

class OwnProcess {
 public:
  bool is_here() const { return getpid() == process_; }
  // kClosed in a child.
  Status check(const char* what) const { return is_here() ? Status::ok() : a_parents(what); }

 private:
  pid_t process_ = getpid();
};

}  // namespace dunlin::torch_backend
