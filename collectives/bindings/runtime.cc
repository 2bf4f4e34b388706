#include "collectives/bindings/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "collectives/bindings/collective_operation.h"

namespace dunlin::binding {

using collective::Call;
using collective::Collective;
using collective::Communicator;

namespace {

// Between two looks to whether the wait was interrupted; a sleeper looks up every 50 ms.
constexpr auto kInterruptEvery = std::chrono::milliseconds(5);
// Of a thread that waits while another one does, and moves everything on.
constexpr auto kFollowerNap = std::chrono::microseconds(200);

// Calls that this thread is within: more than none where a signal handler runs during a wait.
thread_local int stays_of_thread = 0;

}  // namespace

class Runtime::Stay {
 public:
  explicit Stay(Runtime& runtime) : runtime_(runtime) {
    runtime_.blocked_.fetch_add(1, std::memory_order_relaxed);
    runtime_.enter();
    ++runtime_.stays_;
    ++stays_of_thread;
  }
  ~Stay() {
    --runtime_.stays_;
    --stays_of_thread;
    step_out();
  }
  // `call()` without the lock, as if this thread were elsewhere but for shutdown(), which waits.
  template <typename Call>
  auto aside(Call&& call) {
    step_out();
    auto result = call();
    runtime_.blocked_.fetch_add(1, std::memory_order_relaxed);
    runtime_.enter();
    return result;
  }
  // The same where this thread has given the lock up already.
  template <typename Call>
  auto further_aside(Call&& call) {
    // Only who has the lock knows whether there is work: the server finds out.
    call_server(true);
    auto result = call();
    runtime_.blocked_.fetch_add(1, std::memory_order_relaxed);
    return result;
  }
  Stay(const Stay&) = delete;
  Stay& operator=(const Stay&) = delete;

 private:
  void step_out() {
    const bool leaves_work = runtime_.has_work();
    runtime_.leave();
    call_server(leaves_work);
  }
  void call_server(bool leaves_work) {
    {
      const std::lock_guard guard(runtime_.server_mutex_);
      runtime_.has_work_ = runtime_.has_work_ || leaves_work;
      // The server stands aside for the others; the last one calls it for all.
      const bool is_last = runtime_.blocked_.fetch_sub(1, std::memory_order_relaxed) == 1;
      if (!is_last || !runtime_.has_work_) return;
    }
    runtime_.server_news_.notify_one();
  }

  Runtime& runtime_;
};

// Takes the operation off the list of those that threads wait for.
class Runtime::Driven {
 public:
  Driven(Runtime& runtime, const std::shared_ptr<Operation>& operation)
      : runtime_(runtime), operation_(operation) {}
  ~Driven() {
    auto& driven = runtime_.driven_;
    driven.erase(std::ranges::find(driven, operation_));
  }

 private:
  Runtime& runtime_;
  const std::shared_ptr<Operation>& operation_;
};

bool Runtime::is_within_call() {
  return stays_of_thread > 0;
}

void Runtime::enter() {
  lock_.lock([this] { wake(); });
}

void Runtime::leave() {
  std::vector<std::shared_ptr<void>> released;
  std::erase_if(kept_, [&](Keepsake& each) {
    if (each.operation->is_over()) released.push_back(std::move(each.memory));
    return each.operation->is_over();
  });
  lock_.unlock();
}

void Runtime::keep_until_over(std::shared_ptr<Operation> operation, std::shared_ptr<void> memory) {
  const Turn turn(*this);
  kept_.push_back({std::move(operation), std::move(memory)});
}

void Runtime::wake() {
  const std::lock_guard guard(wake_mutex_);
  if (sleeper_ != nullptr) sleeper_->wake();
}

Status Runtime::check_open() const {
  return is_open_ ? Status::ok() : closed();
}

Status Runtime::check(const CommunicatorHandle& communicator) const {
  DUNLIN_TRY(check_open());
  if (!communicator->communicator) return {Code::kClosed, "the communicator was released"};
  DUNLIN_TRY(communicator->failure);
  return communicator->missed;
}

// What every waiting thread does between two looks.
Status Runtime::breathe(const Interrupt& interrupt, TimePoint& last_interrupt) {
  if (has_work() || is_retiring_.load(std::memory_order_relaxed)) sweep();
  const bool is_due = interrupt && clock_.now() - last_interrupt >= kInterruptEvery;
  if (!is_due && !lock_.is_wanted()) return Status::ok();
  leave();
  Status status;
  if (is_due) {
    status = interrupt();
    last_interrupt = clock_.now();
  }
  enter();
  // Others may have taken what would have woken this thread from the sleep that it prepares.
  fabric_->wake();
  return status.is_ok() ? check_open() : status;
}

// Moves on what nobody waits for.
void Runtime::sweep() {
  for (const auto& resident : residents_) resident->progress();
  std::erase_if(outstanding_, [](const std::shared_ptr<Operation>& operation) {
    operation->settle(operation->test());
    return operation->is_over();
  });
  sweep_retiring();
}

// One whose members are not all there any more stays until the end: somebody may still write to it.
void Runtime::sweep_retiring() {
  if (!is_retiring_.load(std::memory_order_relaxed)) return;
  {
    const std::lock_guard guard(retired_mutex_);
    for (CommunicatorHandle& each : retired_) retiring_.push_back({std::move(each), std::nullopt});
    retired_.clear();
  }
  std::erase_if(retiring_, [&](Retiring& each) {
    CommunicatorSlot& slot = *each.communicator;
    if (!slot.communicator || !slot.failure.is_ok() || !slot.missed.is_ok()) return true;
    if (!each.barrier) {
      auto request = slot.communicator->start({Collective::kBarrier});
      if (!request) return !request.status().is_busy();
      each.barrier = *request;
    }
    const Status status = slot.communicator->test(*each.barrier);
    if (status.is_busy()) return false;
    if (status.is_ok()) {
      slot.communicator.reset();
      std::erase(communicators_, each.communicator);
    }
    return true;
  });
  const std::lock_guard guard(retired_mutex_);
  is_retiring_ = !retiring_.empty() || !retired_.empty();
}

void Runtime::keep(std::shared_ptr<Operation> operation) {
  outstanding_.push_back(std::move(operation));
}

bool Runtime::has_work() const {
  return !outstanding_.empty() ||
         std::ranges::any_of(residents_, [](const auto& each) { return each->is_served(); });
}

void Runtime::abandon(const std::shared_ptr<Operation>& operation, const Status& outcome) {
  const Turn turn(*this);
  if (!operation->is_over()) operation->finish(outcome);
  std::erase(outstanding_, operation);
}

Status Runtime::attach(const MakeResident& make) {
  const Stay stay(*this);
  DUNLIN_TRY(check_open());
  DUNLIN_ASSIGN(auto resident, make(*fabric_));
  residents_.push_back(std::move(resident));
  return Status::ok();
}

void Runtime::detach(const Resident& resident) {
  const Turn turn(*this);
  const auto found = std::ranges::find(residents_, &resident, &std::shared_ptr<Resident>::get);
  if (found == residents_.end()) return;
  const std::shared_ptr<Resident> last = *found;
  residents_.erase(found);
  last->close();
}

Result<std::shared_ptr<Operation>> Runtime::post(const CommunicatorHandle& communicator,
                                                 const Call& call, const Interrupt& interrupt,
                                                 Duration patience, Status& interrupted) {
  DUNLIN_TRY(check(communicator));
  auto request = communicator->communicator->start(call);
  if (request.status().is_busy())
    request = wait_for_room(communicator, call, interrupt, patience, interrupted);
  if (!request) return std::move(request).status();
  return std::shared_ptr<Operation>(new CollectiveOperation(communicator, *request));
}

Result<collective::Request> Runtime::wait_for_room(const CommunicatorHandle& communicator,
                                                   const Call& call, const Interrupt& interrupt,
                                                   Duration patience, Status& interrupted) {
  const auto posting = std::make_shared<Posting>(communicator, call);
  Interrupt remember;
  if (interrupt) remember = [&] { return interrupted = interrupt(); };
  const TimePoint until = clock_.now() + patience;
  Status status = drive(posting, patience, remember);
  if (!posting->is_over() && !interrupted.is_ok() && is_open_) {
    const Duration left = std::max(until - clock_.now(), Duration::zero());
    status = drive(posting, std::min(left, config_.deadline), {});
  }
  std::erase(outstanding_, posting);
  if (status.is_ok()) return posting->request();
  if (is_expiry(status)) {
    status = std::move(status).with_context(
        fmt::format("{}: too many operations are under way", to_string(call.collective)));
    communicator->missed = {
        Code::kClosed,
        fmt::format("a call was not made here, so that later ones can't be: {}", status.message())};
  }
  return status;
}

Result<std::shared_ptr<Operation>> Runtime::start(const CommunicatorHandle& communicator,
                                                  const Call& call, const Interrupt& interrupt,
                                                  std::function<void()> when_over,
                                                  std::optional<Duration> patience,
                                                  Status* interrupted) {
  const Stay stay(*this);
  Status told;
  DUNLIN_ASSIGN(auto operation,
                post(communicator, call, interrupt, patience.value_or(config_.deadline), told));
  if (interrupted != nullptr) *interrupted = std::move(told);
  operation->when_over(std::move(when_over));
  operation->settle(operation->test());
  if (!operation->is_over()) keep(operation);
  return operation;
}

// For the deadline, or until an interrupt, which leaves the operation under way.
Status Runtime::post_and_drive(const CommunicatorHandle& communicator, const Call& call,
                               const Interrupt& interrupt, std::shared_ptr<Operation>& operation,
                               std::shared_ptr<void> memory) {
  Status interrupted;
  DUNLIN_ASSIGN(operation, post(communicator, call, interrupt, config_.deadline, interrupted));
  operation->hold(std::move(memory));
  if (interrupted.is_ok()) return drive(operation, config_.deadline, interrupt);
  keep(operation);
  return interrupted;
}

Status Runtime::run(const CommunicatorHandle& communicator, const Call& call,
                    const Interrupt& interrupt, std::shared_ptr<Operation>* unfinished) {
  const Stay stay(*this);
  std::shared_ptr<Operation> operation;
  Status status = post_and_drive(communicator, call, interrupt, operation);
  if (operation && !operation->is_over() && unfinished != nullptr)
    *unfinished = std::move(operation);
  return status;
}

Result<std::shared_ptr<Operation>> Runtime::start(const Make& make) {
  const Stay stay(*this);
  DUNLIN_TRY(check_open());
  DUNLIN_ASSIGN(auto operation, make(*fabric_));
  operation->settle(operation->test());
  if (!operation->is_over()) keep(operation);
  return operation;
}

Status Runtime::run(const Make& make, Duration timeout, const Interrupt& interrupt,
                    std::shared_ptr<Operation>* unfinished) {
  const Stay stay(*this);
  DUNLIN_TRY(check_open());
  DUNLIN_ASSIGN(auto operation, make(*fabric_));
  Status status = drive(operation, timeout, interrupt);
  if (!operation->is_over() && unfinished != nullptr) *unfinished = std::move(operation);
  return status;
}

Status Runtime::test(const std::shared_ptr<Operation>& operation) {
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

Status Runtime::wait(const std::shared_ptr<Operation>& operation, Duration timeout,
                     const Interrupt& interrupt) {
  if (operation->is_over()) return operation->outcome();
  const Stay stay(*this);
  DUNLIN_TRY(check_open());
  return drive(operation, timeout, interrupt);
}

// Moves everything on until the operation is over. Not over in the end: it is outstanding.
Status Runtime::drive(const std::shared_ptr<Operation>& operation, Duration timeout,
                      const Interrupt& interrupt) {
  const TimePoint until = clock_.now() + timeout;
  TimePoint last_interrupt = clock_.now();
  std::erase(outstanding_, operation);
  driven_.push_back(operation);
  const Driven ends(*this, operation);
  Status status;
  // One thread at a time; else they would hand the lock to and fro, and none could sleep.
  while (is_driven_ && !operation->is_over()) {
    status = operation->wait(Duration::zero(), {});
    operation->settle(status);
    if (operation->is_over() || clock_.now() >= until) break;
    leave();
    std::this_thread::sleep_for(kFollowerNap);
    enter();
    if (status = check_open(); !status.is_ok()) break;
    if (status = breathe(interrupt, last_interrupt); !status.is_ok()) break;
    status = Status::busy();
  }
  if (!operation->is_over() && (status.is_ok() || status.is_busy())) {
    is_driven_ = true;
    bool is_ended_by_pause = false;
    auto pause = [&] {
      Status pausing = breathe(interrupt, last_interrupt);
      is_ended_by_pause = !pausing.is_ok();
      return pausing;
    };
    status = operation->wait(std::max(until - clock_.now(), Duration::zero()), std::ref(pause));
    if (!is_ended_by_pause) operation->settle(status);
    is_driven_ = false;
  }
  if (operation->is_over()) return operation->outcome();
  keep(operation);
  return status;
}

// Until nothing of the communicator is under way; of any where it is null.
Status Runtime::drain(const CommunicatorSlot* communicator, Duration timeout,
                      const Interrupt& interrupt) {
  const TimePoint until = clock_.now() + timeout;
  for (;;) {
    const auto is_of_it = [&](const auto& operation) {
      return communicator == nullptr || operation->uses(*communicator);
    };
    const auto found = std::ranges::find_if(outstanding_, is_of_it);
    if (found == outstanding_.end()) {
      if (std::ranges::none_of(driven_, is_of_it)) return Status::ok();
      // Another thread is within it; it comes out when it is over.
      if (clock_.now() >= until)
        return {Code::kDeadlineExceeded, "another thread waits for an operation still under way"};
      leave();
      std::this_thread::sleep_for(kFollowerNap);
      Status status = interrupt ? interrupt() : Status::ok();
      enter();
      DUNLIN_TRY(std::move(status));
      continue;
    }
    const std::shared_ptr<Operation> operation = *found;  // stays, whatever leaves the list
    Status status = drive(operation, std::max(until - clock_.now(), Duration::zero()), interrupt);
    if (!operation->is_over()) return status;
  }
}

Result<CommunicatorHandle> Runtime::split(const CommunicatorHandle& parent, int color, int key) {
  const Stay stay(*this);
  DUNLIN_TRY(check(parent));
  DUNLIN_ASSIGN(auto communicator, parent->communicator->split(color, key));
  return adopt(std::move(communicator));
}

Result<CommunicatorHandle> Runtime::form(std::string name, std::vector<Rank> members,
                                         const std::function<Status(const Interrupt&)>& meet,
                                         const Interrupt& look) {
  Stay stay(*this);
  DUNLIN_TRY(check_open());
  collective::CommunicatorOptions options;
  options.name = std::move(name);
  options.members = std::move(members);
  DUNLIN_ASSIGN(auto communicator, Communicator::prepare(*fabric_, std::move(options)));
  // From here on, others may come to know its memory.
  const auto give_up = [&](Status status) {
    unformed_.push_back(std::move(communicator));
    return status;
  };
  // What others wait for here goes on, so that all come to the meeting.
  const Interrupt while_open = [this] {
    const Turn turn(*this);
    return check_open();
  };
  Status status = stay.aside([&] { return meet(while_open); });
  if (status.is_ok()) status = check_open();
  // It may ask another host, and take its time.
  Interrupt look_aside;
  if (look) look_aside = [&] { return stay.further_aside(look); };
  if (status.is_ok()) status = connect(*communicator, look_aside);
  if (!status.is_ok()) return give_up(std::move(status));
  return adopt(std::move(communicator), look_aside);
}

void Runtime::retire(const CommunicatorHandle& communicator) {
  const std::lock_guard guard(retired_mutex_);
  retired_.push_back(communicator);
  is_retiring_ = true;
}

Status Runtime::release(const CommunicatorHandle& communicator, const Interrupt& interrupt) {
  const Stay stay(*this);
  DUNLIN_TRY(check(communicator));
  if (communicator == world_)
    return {Code::kInvalidArgument, "the communicator of all ranks lasts until shutdown"};
  DUNLIN_TRY(drain(communicator.get(), config_.deadline, interrupt));
  DUNLIN_TRY(run_inside(communicator, {Collective::kBarrier}, interrupt));
  // What other threads have begun meanwhile.
  DUNLIN_TRY(drain(communicator.get(), config_.deadline, interrupt));
  communicator->communicator.reset();
  std::erase(communicators_, communicator);
  return Status::ok();
}

Status Runtime::run_inside(const CommunicatorHandle& communicator, const Call& call,
                           const Interrupt& interrupt, std::shared_ptr<void> memory) {
  std::shared_ptr<Operation> operation;
  return post_and_drive(communicator, call, interrupt, operation, std::move(memory));
}

// With a barrier, so that later calls needn't wait for members that have not allocated theirs yet.
Result<SharedMemory> Runtime::allocate(const CommunicatorHandle& communicator, std::size_t bytes,
                                       const Interrupt& interrupt) {
  const Stay stay(*this);
  DUNLIN_TRY(check(communicator));
  SharedMemory memory;
  DUNLIN_ASSIGN(memory.bytes, communicator->communicator->allocate(bytes));
  DUNLIN_ASSIGN(memory.owner, communicator->communicator->owner_of(memory.bytes));
  DUNLIN_TRY(run_inside(communicator, {Collective::kBarrier}, interrupt));
  return memory;
}

Status Runtime::free(const CommunicatorHandle& communicator, std::span<std::byte> memory,
                     const Interrupt& interrupt) {
  const Stay stay(*this);
  DUNLIN_TRY(check(communicator));
  DUNLIN_TRY(drain(communicator.get(), config_.deadline, interrupt));
  DUNLIN_TRY(check(communicator));
  return communicator->communicator->free(memory);
}

}  // namespace dunlin::binding
