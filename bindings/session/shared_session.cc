#include "bindings/session/shared_session.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace dunlin::binding {
namespace {

struct State {
  std::mutex mutex;
  std::shared_ptr<Session> session;
  int users = 0;
  // The thread that ends the session. It doesn't hold the mutex: finalizers of Python objects that
  // are released meanwhile may call anything.
  std::thread::id ending;
  std::condition_variable ended;

  bool is_ended_here() const { return ending == std::this_thread::get_id(); }
  // Waits until no other thread is ending the session.
  void wait_for_end(std::unique_lock<std::mutex>& guard) {
    ended.wait(guard, [&] { return ending == std::thread::id() || is_ended_here(); });
  }
};

// Never destroyed: threads may use it until the process ends. A new one after fork(), as the old
// mutex may be held by a thread that the child doesn't have.
std::atomic<State*>& place() {
  static std::atomic<State*> state{new State};
  return state;
}

State& state() {
  return *place().load(std::memory_order_acquire);  // pairs with forget()
}

}  // namespace

Result<std::shared_ptr<Session>> SharedSession::enter(const Make& make) {
  State& shared = state();
  std::unique_lock guard(shared.mutex);
  shared.wait_for_end(guard);
  if (shared.is_ended_here())
    return Status(Code::kInvalidArgument,
                  "Dunlin can't be initialized by code that its shutdown runs");
  if (!shared.session) {
    DUNLIN_ASSIGN(shared.session, make());
    shared.users = 0;
  }
  ++shared.users;
  return shared.session;
}

std::shared_ptr<Session> SharedSession::current() {
  State& shared = state();
  std::unique_lock guard(shared.mutex);
  shared.wait_for_end(guard);
  return shared.is_ended_here() ? nullptr : shared.session;
}

Status SharedSession::leave(const std::shared_ptr<Session>& session, Ending ending,
                            Duration timeout) {
  State& shared = state();
  std::unique_lock guard(shared.mutex);
  shared.wait_for_end(guard);
  if (!session || shared.session != session || shared.is_ended_here()) return Status::ok();
  if (shared.users > 1) {
    --shared.users;
    return Status::ok();
  }
  shared.ending = std::this_thread::get_id();
  guard.unlock();
  Status status = session->shutdown(ending, timeout);
  guard.lock();
  shared.ending = {};
  shared.ended.notify_all();
  if (status.code() == Code::kInvalidArgument) return status;
  shared.users = 0;
  shared.session = nullptr;
  return status;
}

void SharedSession::forget() {
  place().store(new State, std::memory_order_release);
}

}  // namespace dunlin::binding
