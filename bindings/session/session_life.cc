// How a Session is made, how it shuts down, and its background thread.
#include <fmt/format.h>

#include <algorithm>

#include "bindings/session/session.h"
#include "runtime/bootstrap/service_thread.h"
#include "runtime/log.h"

namespace dunlin::binding {

using transport::Fabric;

namespace {

// A thread that starts an operation often waits for it next: the background thread holds back for
// so long.
constexpr auto kServerDelay = std::chrono::microseconds(50);
// The longest time that the background thread holds the lock, unless another thread wants it.
constexpr auto kServerTurn = std::chrono::seconds(1);
// The time between two polls of shutdown().
constexpr auto kShutdownNap = std::chrono::microseconds(200);

}  // namespace

Result<std::unique_ptr<Session>> Session::create(Options options) {
  return create(Environment::of_process(), options);
}

Result<std::unique_ptr<Session>> Session::create(const Environment& environment, Options options) {
  DUNLIN_ASSIGN(Config config, Config::parse(environment));
  std::unique_ptr<Session> session(new Session(std::move(config)));
  DUNLIN_TRY(session->join(environment, options));
  return session;
}

Status Session::join(const Environment& environment, Options options) {
  configure_log(config_.log_level, Rank());
  DUNLIN_ASSIGN(bootstrap_, Bootstrap::join(config_, environment));
  job_ = bootstrap_->job();
  configure_log(config_.log_level, job_.rank);
  DUNLIN_ASSIGN(trace_, Trace::open(config_.trace_file, job_.rank, job_.size, clock_));
  DUNLIN_ASSIGN(recorder_, flight::Recorder::open(config_, *bootstrap_, clock_));
  DUNLIN_ASSIGN(fabric_, Fabric::create(*bootstrap_, config_, clock_, trace_.get()));
  fabric_->record_in(recorder_.get());
  {
    const std::lock_guard guard(wake_mutex_);
    sleeper_ = fabric_.get();
  }
  is_newcomer_ = job_.rank.value() >= job_.founders;
  if (is_newcomer_) {
    members_ = {job_.rank};
  } else {
    members_ = bootstrap_->membership().members;
  }
  DUNLIN_TRY(make_world());
  if (options.background_progress) DUNLIN_TRY(serve_in_background());
  return Status::ok();
}

Session::~Session() {
  (void)shutdown(Ending::kAlone, Duration::zero());
}

Status Session::serve_in_background() {
  const Turn turn(*this);
  if (is_open_ && !server_.joinable()) {
    DUNLIN_ASSIGN(server_, bootstrap::start_service_thread("dunlin-progress", [this] { serve(); }));
  }
  return Status::ok();
}

void Session::serve() {
  // It sleeps at once, without spinning: a computing thread needs the core more.
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
            advance_all();
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

void Session::stop_serving() {
  if (!server_.joinable()) return;
  {
    const std::lock_guard guard(server_mutex_);
    stops_serving_ = true;
  }
  server_news_.notify_one();
  wake();
  server_.join();
}

Status Session::shutdown(Ending ending, Duration timeout) {
  if (is_within_call()) {
    return {Code::kInvalidArgument,
            "shutdown() was called within a wait, for example by a signal handler"};
  }
  {
    const Turn turn(*this);
    if (!std::exchange(is_open_, false)) return Status::ok();
    // Calls of other threads find the session closed, and end.
    while (stays_ > 0) {
      leave();
      std::this_thread::sleep_for(kShutdownNap);
      enter();
    }
  }
  stop_serving();
  Status status;
  if (ending == Ending::kTogether && world_ && job_.size > 1) status = wait_for_all_ranks(timeout);
  if (recorder_ && !status.is_ok()) recorder_->fail(status);
  // The others may fail because this rank has gone, and its record tells why.
  if (recorder_ && ending == Ending::kAlone) recorder_->keep();
  release_all();
  return status;
}

Status Session::wait_for_all_ranks(Duration timeout) {
  const TimePoint until = clock_.now() + timeout;
  const Turn turn(*this);  // the fabric's chore needs it as well
  const auto step = [&] {
    fabric_->progress();
    advance_all();
    for (const CommunicatorHandle& slot : communicators_) {
      if (slot->failure.is_ok()) slot->communicator->progress();
    }
    return outstanding_.empty();
  };
  while (!step()) {
    if (clock_.now() >= until)
      return {Code::kDeadlineExceeded, "operations were still in progress at shutdown"};
    leave();
    std::this_thread::sleep_for(kShutdownNap);
    enter();
  }
  return is_member() ? meet("dunlin/end", std::max(until - clock_.now(), Duration{1}))
                     : Status::ok();
}

// Peers may need this process's communicators and residents to finish. Threads that are about to
// leave this object need the lock. Needs the lock.
Status Session::meet(std::string_view name, Duration timeout) {
  const auto step = [&] {
    fabric_->progress();
    advance_all();
    for (const CommunicatorHandle& slot : communicators_) {
      if (slot->communicator && slot->failure.is_ok()) slot->communicator->progress();
    }
  };
  const int chore = bootstrap_->add_chore([&] {
    step();
    if (!lock_.is_wanted()) return;
    leave();
    enter();
  });
  // Also after an exception, since it refers to this call.
  const auto remove = [this](const int* number) { bootstrap_->remove_chore(*number); };
  const std::unique_ptr<const int, decltype(remove)> removed(&chore, remove);
  return bootstrap_->barrier(name, timeout);
}

void Session::release_all() {
  const Turn turn(*this);
  std::ranges::for_each(residents_.rbegin(), residents_.rend(),
                        [](const auto& resident) { resident->close(); });
  residents_.clear();
  pending_releases_.clear();
  std::ranges::for_each(communicators_.rbegin(), communicators_.rend(),
                        [](const CommunicatorHandle& slot) { slot->communicator.reset(); });
  communicators_.clear();
  unformed_.clear();
  {
    const std::lock_guard guard(wake_mutex_);
    sleeper_ = nullptr;
  }
  fabric_.reset();
  if (recorder_) recorder_->leave(bootstrap_->peers());
  recorder_.reset();
  trace_.reset();
  bootstrap_.reset();
  // Without a fabric, no peer writes to their memory any more.
  for (const auto& operation : outstanding_) operation->settle(closed());
  outstanding_.clear();
}

}  // namespace dunlin::binding
