// SharedSession: the one session of a process, for extension modules that know nothing of one
// another (the Python package, the PyTorch backend). It lasts until every enter() was followed by a
// leave().
//
// This is the one place with global state: a process is in one job, and nothing could hand the
// session to a module that is loaded later. Threads: any.
#pragma once

#include <functional>
#include <memory>

#include "bindings/session/session.h"

namespace dunlin::binding {

class SharedSession {
 public:
  using Make = std::function<Result<std::unique_ptr<Session>>()>;
  // Returns the current session, or the one that `make()` makes if there is none. Other threads
  // wait meanwhile.
  static Result<std::shared_ptr<Session>> enter(const Make& make);
  // Returns the current session, or null. Needs no leave().
  static std::shared_ptr<Session> current();
  // Call it once per enter(). The last call shuts the session down, as Session::shutdown(); if that
  // returns kInvalidArgument, nothing was done. Other threads that call this class wait until it
  // has ended. Code that runs because the shutdown releases memory (Python's finalizers) finds no
  // session, and can't make a new one.
  static Status leave(const std::shared_ptr<Session>& session, Ending ending, Duration timeout);
  // Call it in the child after fork(): the session belongs to the parent, and is neither used nor
  // destroyed in the child.
  static void forget();
};

}  // namespace dunlin::binding
