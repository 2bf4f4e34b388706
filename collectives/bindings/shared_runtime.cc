#include "collectives/bindings/shared_runtime.h"

#include <atomic>
#include <mutex>

namespace dunlin::binding {
namespace {

struct State {
  std::mutex mutex;
  std::shared_ptr<Runtime> runtime;
  int users = 0;
};

// Never destroyed: threads may use it until the process ends. Another one after fork(), as the
// first one's mutex may be held by a thread that the child doesn't have.
std::atomic<State*>& place() {
  static std::atomic<State*> state{new State};
  return state;
}

State& state() {
  return *place().load(std::memory_order_acquire);  // pairs with forget()
}

}  // namespace

Result<std::shared_ptr<Runtime>> SharedRuntime::enter(const Make& make) {
  State& shared = state();
  const std::lock_guard guard(shared.mutex);
  if (!shared.runtime) {
    DUNLIN_ASSIGN(shared.runtime, make());
    shared.users = 0;
  }
  ++shared.users;
  return shared.runtime;
}

std::shared_ptr<Runtime> SharedRuntime::current() {
  State& shared = state();
  const std::lock_guard guard(shared.mutex);
  return shared.runtime;
}

Status SharedRuntime::leave(const std::shared_ptr<Runtime>& runtime, Ending ending,
                            Duration patience) {
  State& shared = state();
  const std::lock_guard guard(shared.mutex);
  if (!runtime || shared.runtime != runtime) return Status::ok();
  if (shared.users > 1) {
    --shared.users;
    return Status::ok();
  }
  Status status = runtime->shutdown(ending, patience);
  if (status.code() == Code::kInvalidArgument) return status;
  shared.users = 0;
  shared.runtime = nullptr;
  return status;
}

void SharedRuntime::forget() {
  place().store(new State, std::memory_order_release);
}

}  // namespace dunlin::binding
