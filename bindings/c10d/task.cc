#include "bindings/c10d/task.h"

#include <fmt/format.h>

#include <algorithm>

namespace dunlin::torch_backend {

using binding::Session;
using binding::SessionOperation;

namespace {

// The text has the words that PyTorch's tests and handlers of errors look for.
Status timed_out(const Status& why, Duration timeout) {
  return Status(why).with_context(fmt::format("Timed out waiting {:g} s", to_seconds(timeout)));
}

}  // namespace

Task::Task(std::shared_ptr<Session> session, std::shared_ptr<Finisher> finisher, Duration timeout,
           std::shared_ptr<void> memory, const void* owner)
    : session_(std::move(session)),
      finisher_(std::move(finisher)),
      timeout_(timeout),
      deadline_(SteadyClock().now() + timeout),
      memory_(std::move(memory)),
      owner_(owner) {}

Duration Task::time_left() const {
  return std::max(deadline_ - SteadyClock().now(), Duration::zero());
}

std::function<void()> Task::expect() {
  remaining_.fetch_add(1);
  pins_.fetch_add(1);
  return [this] { operation_over(); };
}

void Task::add(std::shared_ptr<SessionOperation> operation) {
  operations_.push_back(std::move(operation));
}

void Task::fail_start(const Status& why) {
  remaining_.fetch_sub(1);
  pins_.fetch_sub(1);
  if (!start_failure_.is_ok()) return;
  start_failure_ = binding::is_expiry(why) ? late(why) : why;
}

void Task::start(End end) {
  end_ = std::move(end);
  const bool is_watched = finisher_->watch(shared_from_this());
  if (remaining_.fetch_sub(1) == 1) return conclude();
  if (is_watched) return;
  fail({Code::kClosed, "this process has left the job"});
  leave_to_operations();
}

void Task::leave_to_operations() {
  // Released with the last operation.
  const std::shared_ptr<void> ending(nullptr, [task = shared_from_this()](void*) {
    if (task->is_quiet()) task->conclude();
  });
  for (const auto& operation : operations_) session_->keep_until_over(operation, ending);
}

// Either order is safe: a waiting thread reads remaining_ after it has decremented waiters_, and
// this reads waiters_ after it has decremented remaining_.
void Task::operation_over() {
  if (remaining_.fetch_sub(1) == 1 && waiters_.load() == 0) finisher_->conclude(shared_from_this());
  unpin(Where::kUnderLock);
}

// The thread that takes the last pin owns the task; no other thread uses it afterwards.
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

Status Task::wait(std::optional<Duration> timeout, const Session::Interrupt& interrupt) {
  if (has_ended()) return Status::ok();
  const SteadyClock clock;
  const TimePoint own = timeout ? clock.now() + *timeout : TimePoint::max();
  const TimePoint until = std::min(own, deadline_);
  Status status;
  // A thread that aborts the task does not end its operations.
  const Session::Interrupt check = [&]() -> Status {
    if (has_ended()) return {Code::kClosed, "the operation was aborted"};
    return interrupt ? interrupt() : Status::ok();
  };
  waiters_.fetch_add(1);
  for (const auto& operation : operations_) {
    const Duration left = std::max(until - clock.now(), Duration::zero());
    status = session_->wait(operation, left, check);
    if (!operation->is_over()) break;
  }
  waiters_.fetch_sub(1);
  if (is_quiet()) {
    conclude();
    return Status::ok();
  }
  if (has_ended()) return Status::ok();
  if (!binding::is_expiry(status)) return status;
  if (clock.now() < deadline_) return timed_out(status, timeout.value_or(timeout_));
  end_early(late(status));
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
  if (has_ended()) return;
  Status unfinished;
  for (const auto& operation : operations_) {
    // Its error names the missing rank.
    Status status = session_->wait(operation, Duration::zero(), {});
    if (!operation->is_over() && unfinished.is_ok()) unfinished = std::move(status);
  }
  if (is_quiet()) return conclude();
  if (unfinished.is_error()) end_early(late(unfinished));
}

Status Task::late(const Status& why) const {
  return timed_out(why, timeout_);
}

void Task::fail(const Status& why) {
  end_early(why);
}

void Task::end_early(const Status& why) {
  if (has_ended()) return;
  // This comes first: a program that learns of the end may receive again what this task did not.
  (void)session_->with_fabric([&](transport::Fabric&) {
    for (const auto& operation : operations_) operation->withdraw(why);
    return Status::ok();
  });
  // A message that came meanwhile must not be lost.
  is_quiet() ? conclude() : end_with(why);
}

void Task::end_with(const Status& status) {
  if (!has_ended_.exchange(true)) {
    const End end = std::move(end_);
    end(status);
  }
  // After a timeout, operations may still write to the memory.
  if (!is_quiet() || is_settled_.exchange(true)) return;
  memory_.reset();
  unpin(Where::kOutside);
}

}  // namespace dunlin::torch_backend
