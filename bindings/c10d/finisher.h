// Finisher: calls the ends of tasks (task.h) for which no thread waits, and fails tasks at their
// deadlines. So a future fails in time also if no thread waits for it with a timeout.
//
// The end of a task may run any Python code (callbacks of futures), which may wait for the futures
// of other tasks. So ends run in threads of their own, the runners. If all runners are busy for a
// while, another one is started: a task that a callback waits for never queues behind that
// callback.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "runtime/clock.h"
#include "runtime/status.h"

namespace dunlin::torch_backend {

class Task;

// Threads: any.
class Finisher {
 public:
  // Fails when its threads can't be created.
  static Result<std::shared_ptr<Finisher>> start();
  // Calls stop(). Must not be called by the end of a task.
  ~Finisher();
  Finisher(const Finisher&) = delete;
  Finisher& operator=(const Finisher&) = delete;

  // Keeps the task until forget(), and fails it at its deadline. After stop() it does nothing and
  // returns false.
  bool watch(std::shared_ptr<Task> task);
  void forget(Task* task);
  // Lets the finisher's thread do the same a little later.
  void forget_later(Task* task);
  // Lets the finisher conclude the task, whose operations are over and which no thread waits for.
  // Never blocks for long.
  void conclude(std::shared_ptr<Task> task);
  // Fails all tasks of this owner (Task::owner()) that have not ended, soon, in the runners.
  void abort(const void* owner, const Status& why);
  bool is_own_thread() const;
  // Fails the tasks that have not ended and stops the threads. Tasks with operations in progress
  // are left to these: Task::leave_to_operations().
  void stop();
  bool is_stopped();

 private:
  // What a runner has to do with a task.
  enum class Duty { kConclude, kExpire, kFail };
  struct Errand {
    std::shared_ptr<Task> task;
    Duty duty = Duty::kConclude;
    Status why{};  // for kFail
  };
  using Guard = std::unique_lock<std::mutex>;

  Finisher() = default;
  void keep();
  void run();
  static void run(const Errand& errand);
  // These need mutex_:
  Status add_runner();
  void send(Errand errand);
  void find_late();
  void release_forgotten(Guard& guard);

  SteadyClock clock_;
  std::mutex mutex_;
  std::condition_variable keeper_news_;
  std::condition_variable runner_news_;
  std::unordered_map<Task*, std::shared_ptr<Task>> watched_;  // all below under mutex_
  std::deque<Errand> errands_;
  std::uint64_t taken_ = 0;  // the number of errands that runners have taken so far
  std::vector<Task*> forgotten_;
  TimePoint wakes_at_ = TimePoint::max();
  std::vector<std::thread> runners_;
  std::size_t idle_ = 0;  // runners that wait for errands
  std::size_t busy_ = 0;  // runners that carry one out
  bool is_stopping_ = false;
  bool is_over_ = false;  // tells the runners to end
  std::thread keeper_;
};

}  // namespace dunlin::torch_backend
