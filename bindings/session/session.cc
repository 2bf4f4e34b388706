#include "bindings/session/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "bindings/session/collective_operation.h"
#include "bindings/session/stay.h"

namespace dunlin::binding {

using collective::Call;

namespace {

// The time between two calls of a waiting thread's Interrupt. A thread that sleeps wakes up every
// 50 ms.
constexpr auto kInterruptEvery = std::chrono::milliseconds(5);
// The time between two polls of a thread that waits while another waiting thread advances
// everything.
constexpr auto kFollowerNap = std::chrono::microseconds(200);

}  // namespace

// Removes the operation from the list of those that threads wait for.
class Session::Driven {
 public:
  Driven(Session& session, const std::shared_ptr<SessionOperation>& operation)
      : session_(session), operation_(operation) {}
  ~Driven() {
    auto& driven = session_.driven_;
    driven.erase(std::ranges::find(driven, operation_));
  }

 private:
  Session& session_;
  const std::shared_ptr<SessionOperation>& operation_;
};

bool Session::is_within_call() {
  return stays_of_thread > 0;
}

void Session::enter() {
  lock_.lock([this] { wake(); });
}

void Session::leave() {
  std::vector<std::shared_ptr<void>> released;
  std::erase_if(kept_, [&](KeptMemory& each) {
    if (each.operation->is_over()) released.push_back(std::move(each.memory));
    return each.operation->is_over();
  });
  lock_.unlock();
}

void Session::keep_until_over(std::shared_ptr<SessionOperation> operation,
                              std::shared_ptr<void> memory) {
  const Turn turn(*this);
  kept_.push_back({std::move(operation), std::move(memory)});
}

void Session::wake() {
  const std::lock_guard guard(wake_mutex_);
  if (sleeper_ != nullptr) sleeper_->wake();
}

Status Session::check_open() const {
  return is_open_ ? Status::ok() : closed();
}

Status Session::check(const CommunicatorHandle& communicator) const {
  DUNLIN_TRY(check_open());
  if (!communicator->communicator) return {Code::kClosed, "the communicator was released"};
  DUNLIN_TRY(communicator->failure);
  return communicator->missed;
}

// What a waiting thread does between two polls: advances the rest, gives the lock up if another
// thread wants it, and calls the Interrupt if it is due.
Status Session::pause(const Interrupt& interrupt, TimePoint& last_interrupt) {
  if (has_work() || has_releases_.load(std::memory_order_relaxed)) advance_all();
  const bool is_due = interrupt && clock_.now() - last_interrupt >= kInterruptEvery;
  if (!is_due && !lock_.is_wanted()) return Status::ok();
  leave();
  Status status;
  if (is_due) {
    status = interrupt();
    last_interrupt = clock_.now();
  }
  enter();
  // Another thread may have taken the event that would wake this one from the sleep that it
  // prepares.
  fabric_->wake();
  return status.is_ok() ? check_open() : status;
}

// Advances the residents, and the operations that no thread waits for.
void Session::advance_all() {
  for (const auto& resident : residents_) resident->progress();
  std::erase_if(outstanding_, [](const std::shared_ptr<SessionOperation>& operation) {
    operation->settle(operation->test());
    return operation->is_over();
  });
  advance_releases();
}

void Session::keep(std::shared_ptr<SessionOperation> operation) {
  outstanding_.push_back(std::move(operation));
}

bool Session::has_work() const {
  return !outstanding_.empty() ||
         std::ranges::any_of(residents_, [](const auto& each) { return each->is_served(); });
}

void Session::abandon(const std::shared_ptr<SessionOperation>& operation, const Status& outcome) {
  const Turn turn(*this);
  if (!operation->is_over()) operation->finish(outcome);
  std::erase(outstanding_, operation);
}

Status Session::attach(const MakeResident& make) {
  const Stay stay(*this);
  DUNLIN_TRY(check_open());
  DUNLIN_ASSIGN(auto resident, make(*fabric_));
  residents_.push_back(std::move(resident));
  return Status::ok();
}

void Session::detach(const Resident& resident) {
  const Turn turn(*this);
  const auto found = std::ranges::find(residents_, &resident, &std::shared_ptr<Resident>::get);
  if (found == residents_.end()) return;
  const std::shared_ptr<Resident> last = *found;
  residents_.erase(found);
  last->close();
}

Result<std::shared_ptr<SessionOperation>> Session::post(const CommunicatorHandle& communicator,
                                                        const Call& call,
                                                        const Interrupt& interrupt,
                                                        Duration timeout, Status& interrupted) {
  DUNLIN_TRY(check(communicator));
  auto request = communicator->communicator->start(call);
  if (request.status().is_busy())
    request = wait_for_room(communicator, call, interrupt, timeout, interrupted);
  if (!request) return std::move(request).status();
  return std::shared_ptr<SessionOperation>(new CollectiveOperation(communicator, *request));
}

Result<collective::CollectiveRequest> Session::wait_for_room(const CommunicatorHandle& communicator,
                                                             const Call& call,
                                                             const Interrupt& interrupt,
                                                             Duration timeout,
                                                             Status& interrupted) {
  const auto posting = std::make_shared<Posting>(communicator, call);
  Interrupt remember;
  if (interrupt) remember = [&] { return interrupted = interrupt(); };
  const TimePoint until = clock_.now() + timeout;
  Status status = drive(posting, timeout, remember);
  if (!posting->is_over() && !interrupted.is_ok() && is_open_) {
    const Duration left = std::max(until - clock_.now(), Duration::zero());
    status = drive(posting, std::min(left, config_.deadline), {});
  }
  std::erase(outstanding_, posting);
  if (status.is_ok()) return posting->request();
  if (is_expiry(status)) {
    status = std::move(status).with_context(
        fmt::format("{}: too many operations are outstanding", to_string(call.collective)));
    communicator->missed = {
        Code::kClosed,
        fmt::format("later calls can't be made, as one was not made here: {}", status.message())};
  }
  return status;
}

Result<std::shared_ptr<SessionOperation>> Session::start(
    const CommunicatorHandle& communicator, const Call& call, const Interrupt& interrupt,
    std::function<void()> when_over, std::optional<Duration> timeout, Status* interrupted) {
  const Stay stay(*this);
  Status told;
  DUNLIN_ASSIGN(auto operation,
                post(communicator, call, interrupt, timeout.value_or(config_.deadline), told));
  if (interrupted != nullptr) *interrupted = std::move(told);
  operation->when_over(std::move(when_over));
  operation->settle(operation->test());
  if (!operation->is_over()) keep(operation);
  return operation;
}

// Waits for config_.deadline, or until an interrupt, after which the operation continues.
Status Session::post_and_drive(const CommunicatorHandle& communicator, const Call& call,
                               const Interrupt& interrupt,
                               std::shared_ptr<SessionOperation>& operation,
                               std::shared_ptr<void> memory) {
  Status interrupted;
  DUNLIN_ASSIGN(operation, post(communicator, call, interrupt, config_.deadline, interrupted));
  operation->hold(std::move(memory));
  if (interrupted.is_ok()) return drive(operation, config_.deadline, interrupt);
  keep(operation);
  return interrupted;
}

Status Session::run(const CommunicatorHandle& communicator, const Call& call,
                    const Interrupt& interrupt, std::shared_ptr<SessionOperation>* unfinished) {
  const Stay stay(*this);
  std::shared_ptr<SessionOperation> operation;
  Status status = post_and_drive(communicator, call, interrupt, operation);
  if (operation && !operation->is_over() && unfinished != nullptr)
    *unfinished = std::move(operation);
  return status;
}

Result<std::shared_ptr<SessionOperation>> Session::start(const Make& make) {
  const Stay stay(*this);
  DUNLIN_TRY(check_open());
  DUNLIN_ASSIGN(auto operation, make(*fabric_));
  operation->settle(operation->test());
  if (!operation->is_over()) keep(operation);
  return operation;
}

Status Session::run(const Make& make, Duration timeout, const Interrupt& interrupt,
                    std::shared_ptr<SessionOperation>* unfinished) {
  const Stay stay(*this);
  DUNLIN_TRY(check_open());
  DUNLIN_ASSIGN(auto operation, make(*fabric_));
  Status status = drive(operation, timeout, interrupt);
  if (!operation->is_over() && unfinished != nullptr) *unfinished = std::move(operation);
  return status;
}

Status Session::test(const std::shared_ptr<SessionOperation>& operation) {
  if (!operation->is_over()) {
    const Turn turn(*this);
    if (!operation->is_over()) {
      DUNLIN_TRY(check_open());
      fabric_->progress();
      for (const auto& resident : residents_) resident->progress();
      Status status = operation->test();
      operation->settle(status);
      if (!operation->is_over()) return status;
      std::erase(outstanding_, operation);
    }
  }
  return operation->outcome();
}

Status Session::wait(const std::shared_ptr<SessionOperation>& operation, Duration timeout,
                     const Interrupt& interrupt) {
  if (operation->is_over()) return operation->outcome();
  const Stay stay(*this);
  DUNLIN_TRY(check_open());
  return drive(operation, timeout, interrupt);
}

// Advances everything until the operation is over or the wait ends. An operation that is not over
// then is outstanding.
Status Session::drive(const std::shared_ptr<SessionOperation>& operation, Duration timeout,
                      const Interrupt& interrupt) {
  const TimePoint until = clock_.now() + timeout;
  TimePoint last_interrupt = clock_.now();
  std::erase(outstanding_, operation);
  driven_.push_back(operation);
  const Driven ends(*this, operation);
  Status status;
  // One thread at a time advances everything. Several would hand the lock to and fro, and none
  // could sleep.
  while (is_driven_ && !operation->is_over()) {
    status = operation->wait(Duration::zero(), {});
    operation->settle(status);
    if (operation->is_over() || clock_.now() >= until) break;
    leave();
    std::this_thread::sleep_for(kFollowerNap);
    enter();
    if (status = check_open(); !status.is_ok()) break;
    if (status = pause(interrupt, last_interrupt); !status.is_ok()) break;
    status = Status::busy();
  }
  if (!operation->is_over() && (status.is_ok() || status.is_busy())) {
    is_driven_ = true;
    bool is_ended_by_pause = false;
    auto pause_and_note = [&] {
      Status pausing = pause(interrupt, last_interrupt);
      is_ended_by_pause = !pausing.is_ok();
      return pausing;
    };
    status =
        operation->wait(std::max(until - clock_.now(), Duration::zero()), std::ref(pause_and_note));
    if (!is_ended_by_pause) operation->settle(status);
    is_driven_ = false;
  }
  if (operation->is_over()) return operation->outcome();
  keep(operation);
  return status;
}

// Waits until no operation of the communicator is in progress; null: none of any.
Status Session::drain(const CommunicatorSlot* communicator, Duration timeout,
                      const Interrupt& interrupt) {
  const TimePoint until = clock_.now() + timeout;
  for (;;) {
    const auto is_of_it = [&](const auto& operation) {
      return communicator == nullptr || operation->uses(*communicator);
    };
    const auto found = std::ranges::find_if(outstanding_, is_of_it);
    if (found == outstanding_.end()) {
      if (std::ranges::none_of(driven_, is_of_it)) return Status::ok();
      // Another thread waits for it, and removes it from driven_ when it is over.
      if (clock_.now() >= until)
        return {Code::kDeadlineExceeded, "another thread waits for an operation in progress"};
      leave();
      std::this_thread::sleep_for(kFollowerNap);
      Status status = interrupt ? interrupt() : Status::ok();
      enter();
      DUNLIN_TRY(std::move(status));
      continue;
    }
    const std::shared_ptr<SessionOperation> operation = *found;  // lives on when it leaves the list
    Status status = drive(operation, std::max(until - clock_.now(), Duration::zero()), interrupt);
    if (!operation->is_over()) return status;
  }
}

Status Session::run_inside(const CommunicatorHandle& communicator, const Call& call,
                           const Interrupt& interrupt, std::shared_ptr<void> memory) {
  std::shared_ptr<SessionOperation> operation;
  return post_and_drive(communicator, call, interrupt, operation, std::move(memory));
}

}  // namespace dunlin::binding
