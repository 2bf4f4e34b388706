#include "bindings/c10d/finisher.h"

#include <algorithm>
#include <utility>

#include "bindings/c10d/task.h"
#include "runtime/bootstrap/service_thread.h"
#include "runtime/log.h"

namespace dunlin::torch_backend {
namespace {

// If an errand has waited for so long, the runners are assumed to wait for something, and another
// one is started. It is longer than most callbacks take, and too short to be noticed.
constexpr auto kRunnerDelay = std::chrono::milliseconds(10);
// The number of callbacks that may wait for one another at a time. Further ones wait for their
// turn, or until the deadline.
constexpr std::size_t kMostRunners = 64;

// The finisher that this thread is a runner of.
thread_local const Finisher* own_finisher = nullptr;

}  // namespace

Result<std::shared_ptr<Finisher>> Finisher::start() {
  std::shared_ptr<Finisher> finisher(new Finisher);
  const std::lock_guard guard(finisher->mutex_);
  DUNLIN_TRY(finisher->add_runner());
  DUNLIN_ASSIGN(finisher->keeper_, bootstrap::start_service_thread(
                                       "dunlin-c10d", [raw = finisher.get()] { raw->keep(); }));
  return finisher;
}

Finisher::~Finisher() {
  stop();
}

bool Finisher::is_own_thread() const {
  return own_finisher == this;
}

Status Finisher::add_runner() {
  DUNLIN_ASSIGN(auto runner, bootstrap::start_service_thread("dunlin-c10d-end", [this] { run(); }));
  runners_.push_back(std::move(runner));
  return Status::ok();
}

bool Finisher::watch(std::shared_ptr<Task> task) {
  const TimePoint deadline = task->deadline();
  {
    const std::lock_guard guard(mutex_);
    if (is_stopping_) return false;
    Task* const key = task.get();
    watched_.emplace(key, std::move(task));
    if (deadline >= wakes_at_) return true;
    wakes_at_ = deadline;
  }
  keeper_news_.notify_one();
  return true;
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
    if (is_over_) return;  // it was left to its operations
    forgotten_.push_back(task);
  }
  keeper_news_.notify_one();
}

void Finisher::conclude(std::shared_ptr<Task> task) {
  const std::lock_guard guard(mutex_);
  send({std::move(task), Duty::kConclude, {}});
}

void Finisher::send(Errand errand) {
  if (is_over_) return;  // there are no runners any more
  errands_.push_back(std::move(errand));
  // The keeper starts another runner if the errand waits for too long.
  (errands_.size() <= idle_ ? runner_news_ : keeper_news_).notify_one();
}

void Finisher::abort(const void* owner, const Status& why) {
  const std::lock_guard guard(mutex_);
  for (const auto& [key, task] : watched_) {
    if (task->owner() == owner && !task->has_ended()) send({task, Duty::kFail, why});
  }
}

void Finisher::run() {
  own_finisher = this;
  Guard guard(mutex_);
  while (true) {
    ++idle_;
    runner_news_.wait(guard, [&] { return is_over_ || !errands_.empty(); });
    --idle_;
    if (errands_.empty()) return;
    Errand errand = std::move(errands_.front());
    errands_.pop_front();
    ++taken_;
    ++busy_;
    guard.unlock();
    run(errand);
    errand = {};
    guard.lock();
    --busy_;
    if (is_stopping_) keeper_news_.notify_one();
  }
}

void Finisher::run(const Errand& errand) {
  switch (errand.duty) {
    case Duty::kConclude:
      return errand.task->conclude();
    case Duty::kExpire:
      return errand.task->expire();
    case Duty::kFail:
      return errand.task->fail(errand.why);
  }
}

// The keeper's thread: watches deadlines, and starts runners for errands. It carries out none
// itself.
void Finisher::keep() {
  Guard guard(mutex_);
  std::uint64_t seen = taken_;
  TimePoint stands_since = clock_.now();
  while (!is_stopping_ || !errands_.empty() || busy_ > 0) {
    if (!forgotten_.empty()) {
      release_forgotten(guard);
      continue;
    }
    const TimePoint now = clock_.now();
    if (now >= wakes_at_ && !is_stopping_) find_late();
    if (errands_.empty() || seen != taken_ || idle_ > 0) {
      seen = taken_;
      stands_since = now;
      if (!errands_.empty()) runner_news_.notify_one();
    } else if (now - stands_since >= kRunnerDelay) {
      const Status status = runners_.size() < kMostRunners ? add_runner() : Status::ok();
      if (!status.is_ok()) DUNLIN_WARN("callbacks of futures are delayed: {}", status.message());
      stands_since = now;
    }
    if (!errands_.empty()) {
      keeper_news_.wait_until(guard, stands_since + kRunnerDelay);
    } else if (is_stopping_ || wakes_at_ == TimePoint::max()) {
      keeper_news_.wait(guard);
    } else {
      // It is not changed when a task ends: if all tasks have the same timeout, this thread wakes
      // once in that time, instead of once per task.
      keeper_news_.wait_until(guard, wakes_at_);
    }
  }
}

void Finisher::find_late() {
  const TimePoint now = clock_.now();
  wakes_at_ = TimePoint::max();
  for (const auto& [key, task] : watched_) {
    if (task->has_ended()) continue;
    if (now >= task->deadline()) {
      send({task, Duty::kExpire, {}});
    } else {
      wakes_at_ = std::min(wakes_at_, task->deadline());
    }
  }
}

void Finisher::release_forgotten(Guard& guard) {
  std::vector<std::shared_ptr<Task>> released;
  for (Task* const task : std::exchange(forgotten_, {})) {
    if (auto node = watched_.extract(task)) released.push_back(std::move(node.mapped()));
  }
  guard.unlock();
  released.clear();
  guard.lock();
}

bool Finisher::is_stopped() {
  const std::lock_guard guard(mutex_);
  return is_stopping_;
}

void Finisher::stop() {
  {
    const std::lock_guard guard(mutex_);
    if (std::exchange(is_stopping_, true)) return;
    for (const auto& [key, task] : watched_) {
      if (task->has_ended()) continue;
      if (task->is_quiet()) {
        send({task, Duty::kConclude, {}});
      } else {
        send({task, Duty::kFail, {Code::kClosed, "Dunlin was shut down"}});
      }
    }
  }
  keeper_news_.notify_one();
  if (keeper_.joinable()) keeper_.join();
  {
    const std::lock_guard guard(mutex_);
    is_over_ = true;
  }
  runner_news_.notify_all();
  for (std::thread& runner : runners_) runner.join();
  Guard guard(mutex_);
  release_forgotten(guard);
  const auto left = std::exchange(watched_, {});
  guard.unlock();
  // This is done without the mutex: their ends take the session's lock first, and then the mutex.
  for (const auto& [key, task] : left) task->leave_to_operations();
}

}  // namespace dunlin::torch_backend
