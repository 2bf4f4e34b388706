// Task: one call of a process group, as operations of the runtime and what follows on their end;
// and Finisher, the thread that sees to it where nobody waits.
//
// The end is seen by whichever thread moves the last operation on, under the runtime's lock. What
// follows (copies, callbacks of futures, any Python code) must not run there: it runs in the thread
// that waits for the task, where there is one, else in the finisher's. The finisher also ends tasks
// whose time is over, so that a future that nobody waits for with a deadline fails all the same.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "collectives/bindings/runtime.h"

namespace dunlin::torch_backend {

class Finisher;

// Made, given its operations, and started by one thread; any thread from then on.
class Task : public std::enable_shared_from_this<Task> {
 public:
  // `end` is called once, with the first failure if there is one, without any lock. It is dropped
  // then; `memory`, when all operations are over, which may be later.
  using End = std::function<void(const Status&)>;
  Task(std::shared_ptr<binding::Runtime> runtime, std::shared_ptr<Finisher> finisher,
       Duration timeout, std::shared_ptr<void> memory);

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

  // For the finisher:
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
  void time_out(const Status& why);
  void end_with(const Status& status);

  std::shared_ptr<binding::Runtime> runtime_;
  std::shared_ptr<Finisher> finisher_;
  const Duration timeout_;
  const TimePoint deadline_;
  std::shared_ptr<void> memory_;
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

// Any thread.
class Finisher {
 public:
  Finisher();
  // Fails what has not ended. Not from within an `end`.
  ~Finisher();
  Finisher(const Finisher&) = delete;
  Finisher& operator=(const Finisher&) = delete;

  // Keeps the task until it was forgotten, and ends it at its deadline.
  void watch(std::shared_ptr<Task> task);
  void forget(Task* task);
  // The same, by the finisher's thread, a little later.
  void forget_later(Task* task);
  // All operations of the task are over, and nobody waits for it. Never blocks for long.
  void conclude(std::shared_ptr<Task> task);
  bool is_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }
  // Fails what has not ended and stops the thread. Later calls do nothing.
  void stop();
  bool is_stopped();

 private:
  void run();
  std::unique_lock<std::mutex> expire(std::unique_lock<std::mutex> guard);

  SteadyClock clock_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::unordered_map<Task*, std::shared_ptr<Task>> watched_;  // all below under mutex_
  std::vector<std::shared_ptr<Task>> over_;
  std::vector<Task*> forgotten_;
  TimePoint wakes_at_ = TimePoint::max();
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace dunlin::torch_backend
