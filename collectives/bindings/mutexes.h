// Mutex: a DistributedMutex (rma/mutex.h) of the runtime, of all ranks.
//
// Any thread; it excludes ranks, not the threads of one: who locks it while another thread of the
// rank holds it or waits for it gets kInvalidArgument. Where its home manages it, the home's
// background thread answers. It lasts until free() or the runtime's shutdown(); every call after
// that is kClosed. The runtime outlives its use.
#pragma once

#include <memory>
#include <string>

#include "collectives/bindings/runtime.h"
#include "collectives/rma/mutex.h"

namespace dunlin::binding {

class Mutex {
 public:
  // Collective over all ranks, with the same home.
  static Result<std::shared_ptr<Mutex>> create(Runtime& runtime, std::string name, Rank home,
                                               const Runtime::Interrupt& interrupt);
  // Collective, when no rank holds it or waits for it. Gone unless an error is returned;
  // kPeerDead: gone all the same.
  Status free(const Runtime::Interrupt& interrupt);

  const std::string& name() const { return name_; }
  // Whoever has waited for too long, or was interrupted, waits no longer.
  Result<collective::LockOutcome> lock(Duration timeout, const Runtime::Interrupt& interrupt);
  // Waits until others can have it, for the deadline; then it is unlocked, or will be.
  Status unlock(const Runtime::Interrupt& interrupt);

 private:
  class Body;
  class Lock;
  class Unlock;

  Mutex(Runtime& runtime, std::string name) : runtime_(runtime), name_(std::move(name)) {}
  Status build(Rank home, const Runtime::Interrupt& interrupt);
  template <typename Use>
  Status with_body(Use&& use);

  Runtime& runtime_;
  std::string name_;
  std::shared_ptr<Body> body_;
};

}  // namespace dunlin::binding
