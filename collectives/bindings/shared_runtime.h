// SharedRuntime: the one runtime of a process, for extension modules that know nothing of one
// another (the Python package, the PyTorch backend). It lasts until all who have entered have left.
//
// It is the one place with global state: a process is in one job, and a module that is loaded later
// has nobody who could hand it the runtime. Any thread.
#pragma once

#include <functional>
#include <memory>

#include "collectives/bindings/runtime.h"

namespace dunlin::binding {

class SharedRuntime {
 public:
  using Make = std::function<Result<std::unique_ptr<Runtime>>()>;
  // The runtime that is there; where there is none, what `make()` makes. Others wait meanwhile.
  static Result<std::shared_ptr<Runtime>> enter(const Make& make);
  // The runtime that is there, or null. Not an entry.
  static std::shared_ptr<Runtime> current();
  // Once per enter(). The last one shuts it down, as Runtime::shutdown(), whose kInvalidArgument
  // means that nothing was done; for others it goes on.
  // Others wait for its end meanwhile. For what the end itself releases (memory of Python's, whose
  // finalizers call anything) there is no runtime any more, nor another one yet.
  static Status leave(const std::shared_ptr<Runtime>& runtime, Ending ending, Duration patience);
  // After fork(), in the child: the runtime stays the parent's, neither used nor destroyed here.
  static void forget();
};

}  // namespace dunlin::binding
