// Task: one call of a process group, as operations of the runtime and what follows on their end.
//
// The end is seen by whichever thread moves the last operation on, under the runtime's lock. What
// follows (copies, callbacks of futures, any Python code) must not run there: it runs in the thread
// that waits for the task, where there is one, else in one of the finisher's (finisher.h).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/bindings/c10d/finisher.h"
#include "collectives/bindings/c10d/own_process.h"
#include "collectives/bindings/runtime.h"

namespace dunlin::torch_backend {

// Made, given its operations, and started by one thread; any thread from then on.
class Task : public std::enable_shared_from_this<Task> {
 public:
  // `end` is called once, with the first failure if there is one, without any lock. It is dropped
  // then; `memory`, when all operations are over, which may be later. `owner`: whose tasks can be
  // aborted at once.
  using End = std::function<void(const Status&)>;
  Task(std::shared_ptr<binding::Runtime> runtime, std::shared_ptr<Finisher> finisher,
       Duration timeout, std::shared_ptr<void> memory, const void* owner);

  // Before an operation is started: what it calls when it is over, as long as the task is there.
  // Then the operation, or that there is none.
  std::function<void()> expect();
  void add(std::shared_ptr<binding::Operation> operation);
  // Where an operation that was expected could not be started: those before it go on, and the task
  // fails when they are over.
  void fail_start(const Status& why);
  // All are added. Calls `end` at once where all are over.
  void start(End end);

  // Ok when `end` was called, or is being called by another thread. Else why the wait has ended:
  // the timeout (the task goes on), the task's own time (it has failed), an interrupt.
  Status wait(std::optional<Duration> timeout, const binding::Runtime::Interrupt& interrupt);
  // The same without waiting.
  bool is_over();
  // kClosed in a forked child, where none of this may be called.
  Status check_process() const { return process_.check("the operation"); }
  Duration time_left() const;
  const void* owner() const { return owner_; }

  // Where there is no finisher any more: they keep the task, with its memory, until they are over.
  void leave_to_operations();

  // For the finisher. What ends the task before its operations withdraws those that only receive.
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

  std::shared_ptr<binding::Runtime> runtime_;
  std::shared_ptr<Finisher> finisher_;
  const Duration timeout_;
  const TimePoint deadline_;
  std::shared_ptr<void> memory_;
  const void* const owner_;
  OwnProcess process_;
  std::vector<std::shared_ptr<binding::Operation>> operations_;
  Status start_failure_;
  End end_;
  std::atomic<int> remaining_{1};  // operations not over, and one until start()
  // What needs the task to be kept: calls to come from operations, and the task's own end with all
  // operations over. Calls come under the runtime's lock, where a task must not be released: its
  // memory may be Python's.
  std::atomic<int> pins_{1};
  std::atomic<bool> is_settled_{false};
  std::atomic<int> waiters_{0};
  std::atomic<bool> has_ended_{false};
};

}  // namespace dunlin::torch_backend
