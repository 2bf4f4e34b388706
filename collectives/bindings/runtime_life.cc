// How a Runtime and its communicators begin, how it ends, and its background thread.
#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "collectives/bindings/runtime.h"
#include "runtime/bootstrap/service_thread.h"
#include "runtime/log.h"

namespace dunlin::binding {

using collective::Call;
using collective::Collective;
using collective::Communicator;
using collective::DataType;
using transport::Fabric;

namespace {

// Whoever starts something often waits for it next: the background thread lets it begin.
constexpr auto kServerDelay = std::chrono::microseconds(50);
// The longest turn of the background thread; it gives way earlier when somebody wants it.
constexpr auto kServerTurn = std::chrono::seconds(1);
constexpr auto kPartingNap = std::chrono::microseconds(200);
// The first turn of a thread that connects a communicator, in which others don't get the lock: some
// answers of the coordinator's.
constexpr Duration kConnectTurn = std::chrono::milliseconds(10);
// Between two of its turns.
constexpr auto kConnectNap = std::chrono::microseconds(200);

}  // namespace

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
  DUNLIN_ASSIGN(trace_, Trace::open(config_.trace_file, job_.rank, job_.size, clock_));
  DUNLIN_ASSIGN(fabric_, Fabric::create(*bootstrap_, config_, clock_, trace_.get()));
  {
    const std::lock_guard guard(wake_mutex_);
    sleeper_ = fabric_.get();
  }
  DUNLIN_ASSIGN(auto world, Communicator::create(*fabric_, {}));
  {
    const Turn turn(*this);
    DUNLIN_ASSIGN(world_, adopt(std::move(world)));
  }
  if (options.background_progress) serve_in_background();
  return Status::ok();
}

// In turns with other threads: the members may form several communicators at once, and each come to
// another one first.
Status Runtime::connect(Communicator& communicator, const Interrupt& look) {
  const TimePoint until = clock_.now() + config_.deadline;
  Duration turn = kConnectTurn;
  for (;;) {
    const Duration left = std::max(until - clock_.now(), Duration::zero());
    Status status = communicator.connect(std::min(turn, left));
    if (!is_expiry(status)) return status;
    if (turn >= left) {
      return std::move(status).with_context(
          fmt::format("connecting for {:g} s", to_seconds(config_.deadline)));
    }
    leave();
    std::this_thread::sleep_for(kConnectNap);
    Status told = look ? look() : Status::ok();
    enter();
    DUNLIN_TRY(told.is_ok() ? check_open() : told);
    // Where the coordinator is slow, a turn has to be long enough for its answers.
    turn *= 2;
  }
}

// The first call on memory of the caller's allocates memory on all members and waits for theirs.
// It is made here, where all have come, and not by a call that should return at once. Under the
// lock, given up whenever others want it.
Result<CommunicatorHandle> Runtime::adopt(std::unique_ptr<Communicator> communicator,
                                          const Interrupt& look) {
  auto slot = std::make_shared<CommunicatorSlot>();
  slot->rank = communicator->rank();
  slot->size = communicator->size();
  slot->communicator = std::move(communicator);
  communicators_.push_back(slot);
  // What an operation that didn't end writes to.
  const auto value = std::make_shared<float>(1);
  Call first{Collective::kAllReduce, value.get(), value.get(), 1, {DataType::kFloat32}};
  Status status = run_inside(slot, first, look, value);
  if (status.is_ok()) status = run_inside(slot, {Collective::kBarrier}, look);
  if (status.is_ok()) return slot;
  unformed_.push_back(std::move(slot->communicator));
  std::erase(communicators_, slot);
  return status;
}

Runtime::~Runtime() {
  (void)shutdown(Ending::kAlone, Duration::zero());
}

void Runtime::serve_in_background() {
  const Turn turn(*this);
  if (is_open_ && !server_.joinable())
    server_ = bootstrap::start_service_thread("dunlin-progress", [this] { serve(); });
}

void Runtime::serve() {
  // Asleep at once: whoever computes needs the core more than it.
  Waiter waiter(*fabric_, clock_, {0, 0});
  std::unique_lock guard(server_mutex_);
  for (;;) {
    server_news_.wait(guard, [&] {
      return stops_serving_ || (has_work_ && blocked_.load(std::memory_order_relaxed) == 0);
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
            return !has_work() || gives_way ? Status::ok() : Status::busy();
          },
          clock_.now() + kServerTurn);
      const std::lock_guard inner(server_mutex_);
      has_work_ = has_work();
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
  if (is_within_call()) {
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

Status Runtime::meet_all(Duration patience) {
  const TimePoint until = clock_.now() + patience;
  const Turn turn(*this);  // for the fabric's chore as well
  const auto step = [&] {
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
    leave();
    std::this_thread::sleep_for(kPartingNap);
    enter();
  }
  // Peers may need this process's communicators and residents to come to their ends; threads that
  // are about to leave this object need the lock.
  const int chore = bootstrap_->add_chore([&] {
    (void)step();
    if (!lock_.is_wanted()) return;
    leave();
    enter();
  });
  Status status = bootstrap_->barrier("dunlin/end", std::max(until - clock_.now(), Duration{1}));
  bootstrap_->remove_chore(chore);
  return status;
}

void Runtime::dismantle() {
  const Turn turn(*this);
  for (const auto& resident : std::views::reverse(residents_)) resident->close();
  residents_.clear();
  retiring_.clear();
  for (const CommunicatorHandle& slot : std::views::reverse(communicators_))
    slot->communicator.reset();
  communicators_.clear();
  unformed_.clear();
  {
    const std::lock_guard guard(wake_mutex_);
    sleeper_ = nullptr;
  }
  fabric_.reset();
  trace_.reset();
  bootstrap_.reset();
  // Nobody writes to their memory any more.
  for (const auto& operation : outstanding_) operation->settle(closed());
  outstanding_.clear();
}

}  // namespace dunlin::binding
