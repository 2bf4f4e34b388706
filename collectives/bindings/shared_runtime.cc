#include "collectives/bindings/shared_runtime.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace dunlin::binding {
namespace {

struct State {
  std::mutex mutex;
  std::shared_ptr<Runtime> runtime;
  int users = 0;
  // Ends the runtime, without the mutex: what is released meanwhile may be Python's, and call
  // anything.
  std::thread::id ending;
  std::condition_variable ended;

  bool is_ended_here() const { return ending == std::this_thread::get_id(); }
  // Until nobody ends it, or this thread does.
  void wait_for_end(std::unique_lock<std::mutex>& guard) {
    ended.wait(guard, [&] { return ending == std::thread::id() || is_ended_here(); });
  }
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
  std::unique_lock guard(shared.mutex);
  shared.wait_for_end(guard);
  if (shared.is_ended_here())
    return Status(Code::kInvalidArgument, "Dunlin can't be entered by what its end releases");
  if (!shared.runtime) {
    DUNLIN_ASSIGN(shared.runtime, make());
    shared.users = 0;
  }
  ++shared.users;
  return shared.runtime;
}

std::shared_ptr<Runtime> SharedRuntime::current() {
  State& shared = state();
  std::unique_lock guard(shared.mutex);
  shared.wait_for_end(guard);
  return shared.is_ended_here() ? nullptr : shared.runtime;
}

Status SharedRuntime::leave(const std::shared_ptr<Runtime>& runtime, Ending ending,
                            Duration patience) {
  State& shared = state();
  std::unique_lock guard(shared.mutex);
  shared.wait_for_end(guard);
  if (!runtime || shared.runtime != runtime || shared.is_ended_here()) return Status::ok();
  if (shared.users > 1) {
    --shared.users;
    return Status::ok();
  }
  shared.ending = std::this_thread::get_id();
  guard.unlock();
  Status status = runtime->shutdown(ending, patience);
  guard.lock();
  shared.ending = {};
  shared.ended.notify_all();
  if (status.code() == Code::kInvalidArgument) return status;
  shared.users = 0;
  shared.runtime = nullptr;
  return status;
}

void SharedRuntime::forget() {
  place().store(new State, std::memory_order_release);
}

}  // namespace dunlin::binding
