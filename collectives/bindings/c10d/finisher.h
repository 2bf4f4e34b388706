// Finisher: sees to what follows on the ends of tasks (task.h) where nobody waits for them, and
// ends tasks whose time is over, so that a future that nobody waits for with a deadline fails all
// the same.
//
// What follows may be any Python code, which may wait for other tasks' futures in turn. So it runs
// in threads of its own, the runners, and where all of them are busy for a while, there will be one
// more: a task that somebody waits for never stands behind the one who waits.
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

// Any thread.
class Finisher {
 public:
  Finisher();
  // Fails what has not ended. Not from within a task's end.
  ~Finisher();
  Finisher(const Finisher&) = delete;
  Finisher& operator=(const Finisher&) = delete;

  // Keeps the task until it was forgotten, and ends it at its deadline. False after stop(), which
  // does nothing.
  bool watch(std::shared_ptr<Task> task);
  void forget(Task* task);
  // The same, by the finisher's thread, a little later.
  void forget_later(Task* task);
  // All operations of the task are over, and nobody waits for it. Never blocks for long.
  void conclude(std::shared_ptr<Task> task);
  // Fails all tasks of this owner (Task::owner()) that have not ended, soon, in threads of its own.
  void abort(const void* owner, const Status& why);
  bool is_own_thread() const;
  // Fails what has not ended and stops the threads. Tasks that operations still work for are theirs
  // from then on: Task::leave_to_operations().
  void stop();
  bool is_stopped();

 private:
  // What is to be done with a task.
  enum class Duty { kConclude, kExpire, kFail };
  struct Errand {
    std::shared_ptr<Task> task;
    Duty duty = Duty::kConclude;
    Status why{};  // of kFail
  };
  using Guard = std::unique_lock<std::mutex>;

  void keep();
  void run();
  static void run(const Errand& errand);
  // Under mutex_:
  void add_runner();
  void send(Errand errand);
  void find_late();
  void release_forgotten(Guard& guard);

  SteadyClock clock_;
  std::mutex mutex_;
  std::condition_variable keeper_news_;
  std::condition_variable runner_news_;
  std::unordered_map<Task*, std::shared_ptr<Task>> watched_;  // all below under mutex_
  std::deque<Errand> errands_;
  std::uint64_t taken_ = 0;  // errands, so far
  std::vector<Task*> forgotten_;
  TimePoint wakes_at_ = TimePoint::max();
  std::vector<std::thread> runners_;
  std::size_t idle_ = 0;  // runners
  std::size_t busy_ = 0;
  bool is_stopping_ = false;
  bool is_over_ = false;  // the runners' sign to end
  std::thread keeper_;
};

}  // namespace dunlin::torch_backend
