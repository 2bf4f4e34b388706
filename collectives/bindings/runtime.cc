#include "collectives/bindings/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "collectives/bindings/collective_operation.h"
#include "runtime/bootstrap/service_thread.h"
#include "runtime/log.h"

namespace dunlin::binding {

using collective::Call;
using collective::Collective;
using collective::Communicator;
using collective::DataType;
using transport::Fabric;

namespace {

// Between two looks to whether the wait was interrupted; a sleeper looks up every 50 ms.
constexpr auto kInterruptEvery = std::chrono::milliseconds(5);
// Whoever starts something often waits for it next: the background thread lets it begin.
constexpr auto kServerDelay = std::chrono::microseconds(50);
// The longest turn of the background thread; it gives way earlier when somebody wants it.
constexpr auto kServerTurn = std::chrono::seconds(1);
// Of a thread that waits while another one does, and moves everything on.
constexpr auto kFollowerNap = std::chrono::microseconds(200);
constexpr auto kPartingNap = std::chrono::microseconds(200);

// Calls that this thread is within: more than none where a signal handler runs during a wait.
thread_local int stays_of_thread = 0;

// Ended, one way or another.
void settle(Operation& operation, const Status& status) {
  if (!operation.is_over() && !status.is_busy() && !is_expiry(status)) operation.finish(status);
}

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
    const bool leaves_work = !runtime_.outstanding_.empty();
    runtime_.leave();
    runtime_.blocked_.fetch_sub(1, std::memory_order_relaxed);
    if (!leaves_work) return;
    // Under the mutex, so that the thread doesn't miss it between its look and its sleep.
    { const std::lock_guard guard(runtime_.server_mutex_); }
    runtime_.server_news_.notify_one();
  }
  // `call()` without the lock, as if this thread were elsewhere but for shutdown(), which waits.
  template <typename Call>
  auto aside(Call&& call) {
    runtime_.leave();
    runtime_.blocked_.fetch_sub(1, std::memory_order_relaxed);
    { const std::lock_guard guard(runtime_.server_mutex_); }
    runtime_.server_news_.notify_one();
    auto result = call();
    runtime_.blocked_.fetch_add(1, std::memory_order_relaxed);
    runtime_.enter();
    return result;
  }
  Stay(const Stay&) = delete;
  Stay& operator=(const Stay&) = delete;

 private:
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

Result<std::unique_ptr<Runtime>> Runtime::create(Options options) {
  return create(Environment::of_process(), options);
}

Result<std::unique_ptr<Runtime>> Runtime::create(const Environment& environment, Options options) {
  DUNLIN_ASSIGN(Config config, Config::parse(environment));
  std::unique_ptr<Runtime> runtime(new Runtime(std::move(config)));
  DUNLIN_TRY(runtime->join(environment, options));
  return runtime;
}

Status Runtime::join(const Environment& environment, Options options) {
  configure_log(config_.log_level, Rank());
  DUNLIN_ASSIGN(bootstrap_, Bootstrap::join(config_, environment));
  job_ = bootstrap_->job();
  configure_log(config_.log_level, job_.rank);
  if (!config_.trace_file.empty() && job_.size > 1 &&
      config_.trace_file.find("%r") == std::string::npos) {
    return {Code::kInvalidArgument,
            "DUNLIN_TRACE: the ranks would write to one file; put %r into its name"};
  }
  if (!config_.trace_file.empty()) trace_.emplace(config_.trace_file, job_.rank, clock_);
  DUNLIN_ASSIGN(fabric_, Fabric::create(*bootstrap_, config_, clock_, trace_ ? &*trace_ : nullptr));
  {
    const std::lock_guard guard(wake_mutex_);
    sleeper_ = fabric_.get();
  }
  DUNLIN_ASSIGN(auto world, Communicator::create(*fabric_, {}));
  DUNLIN_ASSIGN(world_, adopt(std::move(world)));
  if (options.background_progress)
    server_ = bootstrap::start_service_thread("dunlin-progress", [this] { serve(); });
  return Status::ok();
}

// The first call on memory of the caller's allocates memory on all members and waits for theirs.
// It is made here, where all have come, and not by a call that should return at once.
Result<CommunicatorHandle> Runtime::adopt(std::unique_ptr<Communicator> communicator) {
  float value = 1;
  DUNLIN_TRY(communicator->all_reduce(&value, &value, 1, {DataType::kFloat32}));
  DUNLIN_TRY(communicator->barrier());
  auto slot = std::make_shared<CommunicatorSlot>();
  slot->rank = communicator->rank();
  slot->size = communicator->size();
  slot->communicator = std::move(communicator);
  communicators_.push_back(slot);
  return slot;
}

Runtime::~Runtime() {
  (void)shutdown(Ending::kAlone, Duration::zero());
}

void Runtime::enter() {
  lock_.lock([this] { wake(); });
}

void Runtime::leave() {
  lock_.unlock();
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
  return communicator->failure;
}

// What every waiting thread does between two looks.
Status Runtime::breathe(const Interrupt& interrupt, TimePoint& last_interrupt) {
  if (!outstanding_.empty() || !retiring_.empty()) sweep();
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
  std::erase_if(outstanding_, [](const std::shared_ptr<Operation>& operation) {
    settle(*operation, operation->test());
    return operation->is_over();
  });
  if (!retiring_.empty()) sweep_retiring();
}

// One whose members are not all there any more stays until the end: somebody may still write to it.
void Runtime::sweep_retiring() {
  std::erase_if(retiring_, [&](Retiring& each) {
    CommunicatorSlot& slot = *each.communicator;
    if (!slot.communicator || !slot.failure.is_ok()) return true;
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
}

void Runtime::keep(std::shared_ptr<Operation> operation) {
  outstanding_.push_back(std::move(operation));
  const std::lock_guard guard(server_mutex_);
  has_outstanding_ = true;  // whoever keeps something stays, and tells the thread on leaving
}

Status Runtime::track(std::shared_ptr<Operation> operation) {
  const Stay stay(*this);
  DUNLIN_TRY(check_open());
  keep(std::move(operation));
  return Status::ok();
}

Result<std::shared_ptr<Operation>> Runtime::post(const CommunicatorHandle& communicator,
                                                 const Call& call, const Interrupt& interrupt) {
  DUNLIN_TRY(check(communicator));
  const TimePoint began = clock_.now();
  TimePoint last_interrupt = began;
  for (;;) {
    auto request = communicator->communicator->start(call);
    if (request) return std::shared_ptr<Operation>(new CollectiveOperation(communicator, *request));
    if (!request.status().is_busy()) return std::move(request).status();
    // The queue is full: the oldest calls make room.
    communicator->communicator->progress();
    DUNLIN_TRY(breathe(interrupt, last_interrupt));
    DUNLIN_TRY(check(communicator));
    if (clock_.now() - began > config_.deadline) {
      return Status(Code::kDeadlineExceeded,
                    fmt::format("{}: too many operations are under way, and none has ended for "
                                "{:g} s",
                                to_string(call.collective), to_seconds(config_.deadline)));
    }
  }
}

Result<std::shared_ptr<Operation>> Runtime::start(const CommunicatorHandle& communicator,
                                                  const Call& call, const Interrupt& interrupt,
                                                  std::function<void()> when_over) {
  const Stay stay(*this);
  DUNLIN_ASSIGN(auto operation, post(communicator, call, interrupt));
  operation->when_over(std::move(when_over));
  settle(*operation, operation->test());
  if (!operation->is_over()) keep(operation);
  return operation;
}

Status Runtime::run(const CommunicatorHandle& communicator, const Call& call,
                    const Interrupt& interrupt, std::shared_ptr<Operation>* unfinished) {
  const Stay stay(*this);
  DUNLIN_ASSIGN(auto operation, post(communicator, call, interrupt));
  Status status = drive(operation, config_.deadline, interrupt);
  if (!operation->is_over() && unfinished != nullptr) *unfinished = std::move(operation);
  return status;
}

Status Runtime::test(const std::shared_ptr<Operation>& operation) {
  if (!operation->is_over()) {
    const Turn turn(*this);
    if (!operation->is_over()) {
      DUNLIN_TRY(check_open());
      Status status = operation->test();
      settle(*operation, status);
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
    settle(*operation, status);
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
    if (!is_ended_by_pause) settle(*operation, status);
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
      enter();
      if (interrupt) DUNLIN_TRY(interrupt());
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
                                         const std::function<Status()>& meet) {
  Stay stay(*this);
  DUNLIN_TRY(check_open());
  collective::CommunicatorOptions options;
  options.name = std::move(name);
  options.members = std::move(members);
  DUNLIN_ASSIGN(auto communicator, Communicator::prepare(*fabric_, std::move(options)));
  // What others wait for here goes on, so that all come to the meeting.
  DUNLIN_TRY(stay.aside(meet));
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(communicator->connect());
  return adopt(std::move(communicator));
}

void Runtime::retire(const CommunicatorHandle& communicator) {
  const Stay stay(*this);
  if (!is_open_ || !communicator->communicator) return;
  retiring_.push_back({communicator, std::nullopt});
  sweep_retiring();
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
                           const Interrupt& interrupt) {
  DUNLIN_ASSIGN(const auto operation, post(communicator, call, interrupt));
  return drive(operation, config_.deadline, interrupt);
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

void Runtime::serve() {
  // Asleep at once: whoever computes needs the core more than it.
  Waiter waiter(*fabric_, clock_, {0, 0});
  std::unique_lock guard(server_mutex_);
  for (;;) {
    server_news_.wait(guard, [&] {
      return stops_serving_ || (has_outstanding_ && blocked_.load(std::memory_order_relaxed) == 0);
    });
    server_news_.wait_for(guard, kServerDelay, [&] { return stops_serving_.load(); });
    if (stops_serving_) return;
    if (blocked_.load(std::memory_order_relaxed) > 0) continue;
    guard.unlock();
    {
      const Turn turn(*this);
      (void)waiter.until(
          [&] {
            sweep();
            const bool gives_way = lock_.is_wanted() || stops_serving_;
            return outstanding_.empty() || gives_way ? Status::ok() : Status::busy();
          },
          clock_.now() + kServerTurn);
      const std::lock_guard inner(server_mutex_);
      has_outstanding_ = !outstanding_.empty();
    }
    guard.lock();
  }
}

void Runtime::stop_serving() {
  if (!server_.joinable()) return;
  {
    const std::lock_guard guard(server_mutex_);
    stops_serving_ = true;
  }
  server_news_.notify_one();
  wake();
  server_.join();
}

Status Runtime::shutdown(Ending ending, Duration patience) {
  if (stays_of_thread > 0) {
    return {Code::kInvalidArgument, "shutdown() from within a wait: by a signal handler, say"};
  }
  {
    const Turn turn(*this);
    if (!std::exchange(is_open_, false)) return Status::ok();
    // Calls of other threads notice, and end.
    while (stays_ > 0) {
      leave();
      std::this_thread::sleep_for(kPartingNap);
      enter();
    }
  }
  stop_serving();
  Status status;
  if (ending == Ending::kTogether && world_ && job_.size > 1) status = meet_all(patience);
  dismantle();
  return status;
}

// Peers may need this process's progress to come to their ends, hence the thread.
Status Runtime::meet_all(Duration patience) {
  const TimePoint until = clock_.now() + patience;
  const auto step = [&] {
    const Turn turn(*this);
    fabric_->progress();
    sweep();
    for (const CommunicatorHandle& slot : communicators_) {
      if (slot->failure.is_ok()) slot->communicator->progress();
    }
    return outstanding_.empty();
  };
  while (!step()) {
    if (clock_.now() >= until)
      return {Code::kDeadlineExceeded, "operations were still under way at the end"};
    std::this_thread::sleep_for(kPartingNap);
  }
  Status status;
  std::atomic<bool> is_met{false};
  std::thread meeting = bootstrap::start_service_thread("dunlin-parting", [&] {
    status = bootstrap_->barrier("dunlin/end", std::max(until - clock_.now(), Duration{1}));
    is_met.store(true, std::memory_order_release);
  });
  while (!is_met.load(std::memory_order_acquire)) {
    (void)step();
    std::this_thread::sleep_for(kPartingNap);
  }
  meeting.join();
  return status;
}

void Runtime::dismantle() {
  const Turn turn(*this);
  retiring_.clear();
  for (const CommunicatorHandle& slot : std::views::reverse(communicators_))
    slot->communicator.reset();
  communicators_.clear();
  {
    const std::lock_guard guard(wake_mutex_);
    sleeper_ = nullptr;
  }
  fabric_.reset();
  trace_.reset();
  bootstrap_.reset();
  // Nobody writes to their memory any more.
  for (const auto& operation : outstanding_) settle(*operation, closed());
  outstanding_.clear();
}

}  // namespace dunlin::binding
