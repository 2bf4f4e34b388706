// Task: one call of a process group: operations of the session, and a function for their end.
//
// The thread that advances the last operation to its end holds the session's lock. The function
// (copies, callbacks of futures, any Python code) must not run there. It runs in the thread that
// waits for the task, or, if there is none, in a thread of the finisher (finisher.h).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "bindings/c10d/finisher.h"
#include "bindings/c10d/own_process.h"
#include "bindings/session/session.h"

namespace dunlin::torch_backend {

// Threads: one thread makes the task, adds its operations and starts it; any thread from then on.
class Task : public std::enable_shared_from_this<Task> {
 public:
  // `end` is called once, without any lock, with the first error if there is one, and dropped then.
  // `memory` is dropped when all operations are over, which may be later. `owner`:
  // Finisher::abort() aborts all tasks of an owner.
  using End = std::function<void(const Status&)>;
  Task(std::shared_ptr<binding::Session> session, std::shared_ptr<Finisher> finisher,
       Duration timeout, std::shared_ptr<void> memory, const void* owner);

  // Call it before an operation is started. It returns the operation's when_over() function, which
  // is valid as long as the task exists. Next, add() takes the operation, or fail_start() an error.
  std::function<void()> expect();
  void add(std::shared_ptr<binding::SessionOperation> operation);
  // Call it if an expected operation could not be started. Those before it continue, and the task
  // fails when they are over.
  void fail_start(const Status& why);
  // Call it when all operations are added. Calls `end` at once if all are over.
  void start(End end);

  // Ok when `end` was called, or another thread is calling it. Otherwise the reason why the wait
  // has ended: the timeout (the task continues), the task's own deadline (it has failed), or an
  // interrupt.
  Status wait(std::optional<Duration> timeout, const binding::Session::Interrupt& interrupt);
  // Whether wait() would be ok, without waiting.
  bool is_over();
  // kClosed in a forked child, where nothing else of this class may be called.
  Status check_process() const { return process_.check("the operation"); }
  Duration time_left() const;
  const void* owner() const { return owner_; }

  // Call it after the finisher has stopped: the operations keep the task, with its memory, until
  // they are over.
  void leave_to_operations();

  // The finisher calls these. expire() and fail() end the task before its operations, and withdraw
  // those that only receive.
  TimePoint deadline() const { return deadline_; }
  bool has_ended() const { return has_ended_.load(std::memory_order_acquire); }
  bool is_quiet() const { return remaining_.load() == 0; }
  void conclude();
  void expire();
  void fail(const Status& why);

 private:
  void operation_over();
  enum class Where : bool { kUnderLock, kOutside };
  void unpin(Where where);
  Status late(const Status& why) const;
  void end_early(const Status& why);
  void end_with(const Status& status);

  std::shared_ptr<binding::Session> session_;
  std::shared_ptr<Finisher> finisher_;
  const Duration timeout_;
  const TimePoint deadline_;
  std::shared_ptr<void> memory_;
  const void* const owner_;
  OwnProcess process_;
  std::vector<std::shared_ptr<binding::SessionOperation>> operations_;
  Status start_failure_;
  End end_;
  std::atomic<int> remaining_{1};  // operations that are not over, and one more until start()
  // Reasons to keep the task: calls that operations will make, and one for the task's own end with
  // all operations over. Operations call under the session's lock, where a task must not be
  // released, as its memory may be Python's.
  std::atomic<int> pins_{1};
  std::atomic<bool> is_settled_{false};
  std::atomic<int> waiters_{0};
  std::atomic<bool> has_ended_{false};
};

}  // namespace dunlin::torch_backend
