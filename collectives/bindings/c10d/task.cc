#include "collectives/bindings/c10d/task.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/bootstrap/service_thread.h"

namespace dunlin::torch_backend {

using binding::Operation;
using binding::Runtime;

Task::Task(std::shared_ptr<Runtime> runtime, std::shared_ptr<Finisher> finisher, Duration timeout,
           std::shared_ptr<void> memory)
    : runtime_(std::move(runtime)),
      finisher_(std::move(finisher)),
      timeout_(timeout),
      deadline_(SteadyClock().now() + timeout),
      memory_(std::move(memory)) {}

std::function<void()> Task::expect() {
  remaining_.fetch_add(1);
  pins_.fetch_add(1);
  return [this] { operation_over(); };
}

void Task::add(std::shared_ptr<Operation> operation) {
  operations_.push_back(std::move(operation));
}

void Task::fail_start(const Status& why) {
  remaining_.fetch_sub(1);
  pins_.fetch_sub(1);
  if (start_failure_.is_ok()) start_failure_ = why;
}

void Task::start(End end) {
  end_ = std::move(end);
  finisher_->watch(shared_from_this());
  if (remaining_.fetch_sub(1) == 1) conclude();
}

// Both orders are safe: who waits looks at remaining_ after it has taken itself off waiters_, and
// this looks at waiters_ after it has taken the operation off remaining_.
void Task::operation_over() {
  if (remaining_.fetch_sub(1) == 1 && waiters_.load() == 0) finisher_->conclude(shared_from_this());
  unpin(Where::kUnderLock);
}

// Whoever takes the last pin has the task; nobody else touches it afterwards.
void Task::unpin(Where where) {
  if (pins_.fetch_sub(1) != 1) return;
  const std::shared_ptr<Finisher> finisher = finisher_;
  where == Where::kOutside ? finisher->forget(this) : finisher->forget_later(this);
}

bool Task::is_over() {
  if (!is_quiet()) return has_ended();
  conclude();
  return true;
}

Status Task::wait(std::optional<Duration> timeout, const Runtime::Interrupt& interrupt) {
  if (has_ended()) return Status::ok();
  const SteadyClock clock;
  const TimePoint own = timeout ? clock.now() + *timeout : TimePoint::max();
  const TimePoint until = std::min(own, deadline_);
  Status status;
  waiters_.fetch_add(1);
  for (const auto& operation : operations_) {
    const Duration left = std::max(until - clock.now(), Duration::zero());
    status = runtime_->wait(operation, left, interrupt);
    if (!operation->is_over()) break;
  }
  waiters_.fetch_sub(1);
  if (is_quiet()) {
    conclude();
    return Status::ok();
  }
  if (has_ended()) return Status::ok();
  if (!binding::is_expiry(status) || clock.now() < deadline_) return status;
  time_out(status);
  return Status::ok();
}

void Task::conclude() {
  Status status = start_failure_;
  for (const auto& operation : operations_) {
    if (status.is_ok()) status = operation->outcome();
  }
  end_with(status);
}

void Task::expire() {
  Status late;
  for (const auto& operation : operations_) {
    // Says for whom.
    Status status = runtime_->wait(operation, Duration::zero(), {});
    if (!operation->is_over() && late.is_ok()) late = std::move(status);
  }
  if (is_quiet()) return conclude();
  if (late.is_error()) time_out(late);
}

void Task::time_out(const Status& why) {
  end_with(Status(why).with_context(fmt::format("timed out after {:g} s", to_seconds(timeout_))));
}

void Task::fail(const Status& why) {
  end_with(why);
}

void Task::end_with(const Status& status) {
  if (!has_ended_.exchange(true)) {
    const End end = std::move(end_);
    end(status);
  }
  // Operations may still write to the memory where the time was over.
  if (is_quiet() && !is_settled_.exchange(true)) unpin(Where::kOutside);
}

Finisher::Finisher() : thread_(bootstrap::start_service_thread("dunlin-c10d", [this] { run(); })) {}

Finisher::~Finisher() {
  stop();
}

void Finisher::watch(std::shared_ptr<Task> task) {
  const TimePoint deadline = task->deadline();
  {
    const std::lock_guard guard(mutex_);
    Task* const key = task.get();
    watched_.emplace(key, std::move(task));
    if (deadline >= wakes_at_) return;
    wakes_at_ = deadline;
  }
  news_.notify_one();
}

void Finisher::forget(Task* task) {
  // Released without the mutex.
  decltype(watched_)::node_type released;
  const std::lock_guard guard(mutex_);
  released = watched_.extract(task);
}

void Finisher::forget_later(Task* task) {
  {
    const std::lock_guard guard(mutex_);
    forgotten_.push_back(task);
  }
  news_.notify_one();
}

void Finisher::conclude(std::shared_ptr<Task> task) {
  {
    const std::lock_guard guard(mutex_);
    over_.push_back(std::move(task));
  }
  news_.notify_one();
}

void Finisher::run() {
  std::unique_lock guard(mutex_);
  while (!is_stopping_) {
    if (!forgotten_.empty()) {
      std::vector<std::shared_ptr<Task>> released;
      for (Task* const task : std::exchange(forgotten_, {})) {
        if (auto node = watched_.extract(task)) released.push_back(std::move(node.mapped()));
      }
      guard.unlock();
      released.clear();
      guard.lock();
    } else if (!over_.empty()) {
      std::vector<std::shared_ptr<Task>> over = std::exchange(over_, {});
      guard.unlock();
      for (const auto& task : over) task->conclude();
      over.clear();
      guard.lock();
    } else if (clock_.now() >= wakes_at_) {
      guard = expire(std::move(guard));
    } else if (wakes_at_ == TimePoint::max()) {
      news_.wait(guard);
    } else {
      // Not put off when the task has ended: with the same timeout for all, this thread wakes once
      // in that time, and not for each.
      news_.wait_until(guard, wakes_at_);
    }
  }
}

std::unique_lock<std::mutex> Finisher::expire(std::unique_lock<std::mutex> guard) {
  const TimePoint now = clock_.now();
  std::vector<std::shared_ptr<Task>> late;
  wakes_at_ = TimePoint::max();
  for (const auto& [key, task] : watched_) {
    if (task->has_ended()) continue;
    if (now >= task->deadline()) {
      late.push_back(task);
    } else {
      wakes_at_ = std::min(wakes_at_, task->deadline());
    }
  }
  guard.unlock();
  for (const auto& task : late) task->expire();
  late.clear();
  guard.lock();
  return guard;
}

bool Finisher::is_stopped() {
  const std::lock_guard guard(mutex_);
  return is_stopping_;
}

void Finisher::stop() {
  {
    const std::lock_guard guard(mutex_);
    if (std::exchange(is_stopping_, true)) return;
  }
  news_.notify_one();
  thread_.join();
  std::vector<std::shared_ptr<Task>> over;
  std::vector<std::shared_ptr<Task>> left;
  {
    const std::lock_guard guard(mutex_);
    over = std::exchange(over_, {});
    for (const auto& [key, task] : watched_) left.push_back(task);
  }
  for (const auto& task : left) {
    if (task->is_quiet()) {
      task->conclude();
    } else if (!task->has_ended()) {
      task->fail({Code::kClosed, "Dunlin was shut down"});
    }
  }
  // Those that operations still work for stay, whatever becomes of them.
  std::vector<std::shared_ptr<Task>> released;
  const std::lock_guard guard(mutex_);
  for (Task* const task : std::exchange(forgotten_, {})) {
    if (auto node = watched_.extract(task)) released.push_back(std::move(node.mapped()));
  }
}

}  // namespace dunlin::torch_backend
