#include "runtime/bootstrap/tcp_bootstrap.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/service_thread.h"
#include "runtime/log.h"

namespace dunlin::bootstrap {
namespace {

Duration leave_grace(const JoinPlan& plan, const AuthenticatedSocket& connection) {
  const std::string_view kernel = plan.process.kernel();
  const bool is_local = !kernel.empty() && kernel == connection.coordinator.kernel();
  return is_local ? kLeaveGrace : kRemoteLeaveGrace;
}

}  // namespace

Result<std::unique_ptr<Bootstrap>> TcpBootstrap::join(JoinPlan plan) {
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + plan.timeout;
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.is_open()) return Status::from_errno("eventfd", errno);
  auto connection = find_coordinator(plan, deadline);
  if (!connection) {
    return std::move(connection)
        .status()
        .with_context(plan.job.rank == Rank()
                          ? "cannot join the running job"
                          : fmt::format("rank {} cannot join", plan.job.rank.value()));
  }
  plan.job.rank = connection->rank;
  plan.job.size = connection->size;
  plan.job.founders = connection->founders;
  plan.job.job_id = connection->job_id;
  std::unique_ptr<TcpBootstrap> made(
      new TcpBootstrap(std::move(plan), std::move(*connection), std::move(wake)));
  DUNLIN_ASSIGN(made->monitor_, start_service_thread("dunlin-monitor", [bootstrap = made.get()] {
                  bootstrap->monitor();
                }));
  DUNLIN_TRY(made->start(deadline - clock.now()));
  if (made->plan_.counts_local) DUNLIN_TRY(made->count_local(deadline - clock.now()));
  return std::unique_ptr<Bootstrap>(std::move(made));
}

TcpBootstrap::TcpBootstrap(JoinPlan plan, AuthenticatedSocket connection, Fd wake)
    : BootstrapClient(plan.job, derive_key(plan.secret, plan.job.job_id)),
      plan_(std::move(plan)),
      leave_timeout_(connection.grace),
      wake_(std::move(wake)),
      pids_(peers(), job().rank, leave_grace(plan_, connection),
            [this](Rank dead) { witness_.report_end(dead); }),
      contact_(
          plan_, std::move(connection), [this](Message message) { take(std::move(message)); },
          [this] { this->wake(); }),
      witness_([this](const Message& testimony) { contact_.send(testimony); }) {
  listener_ = peers().add_listener([this] { this->wake(); });
}

TcpBootstrap::~TcpBootstrap() {
  leave();
}

void TcpBootstrap::leave() noexcept {
  if (std::exchange(has_left_, true)) return;
  // Without its monitor, this rank has never taken part, and can tell nobody that it leaves.
  const bool took_part = monitor_.joinable();
  if (took_part) {
    announces_leave_.store(true, std::memory_order_relaxed);
    announce_leave(leave_timeout_);
    {
      const std::lock_guard lock(outbox_mutex_);
      is_leaving_ = true;
    }
    wake();
    monitor_.join();
  }
  peers().remove_listener(listener_);
  disconnect(Status(Code::kClosed, "this rank has left the job"));
  if (plan_.hosted) {
    const Duration linger = took_part ? plan_.linger : Duration::zero();
    if (!plan_.hosted->wait_until_empty(SteadyClock().now() + linger)) {
      DUNLIN_WARN("bootstrap: rank {} stops the coordinator, which {} other ranks still need",
                  rank().value(), plan_.hosted->active());
    }
    plan_.hosted.reset();
  }
  if (plan_.on_leave) plan_.on_leave();
}

void TcpBootstrap::wake() {
  eventfd_write(wake_.get(), 1);
}

void TcpBootstrap::transmit(const Message& message) {
  {
    const std::lock_guard lock(outbox_mutex_);
    outbox_.push_back(message);
  }
  wake();
}

void TcpBootstrap::monitor() {
  const SteadyClock clock;
  bool has_ended = false;
  for (bool is_leaving = false; !is_leaving;) {
    std::vector<Message> messages;
    {
      const std::lock_guard lock(outbox_mutex_);
      messages.swap(outbox_);
      is_leaving = is_leaving_;
    }
    for (const Message& message : messages) contact_.send(message);
    contact_.turn(clock.now());
    if (contact_.end() && !std::exchange(has_ended, true)) on_end(*contact_.end());
    pids_.refresh();
    pids_.settle(clock.now());
    if (!is_leaving) wait_for_events(pids_.next(contact_.next()));
  }
}

void TcpBootstrap::wait_for_events(TimePoint until) {
  const SteadyClock clock;
  std::vector<pollfd> entries{{wake_.get(), POLLIN, 0}};
  contact_.append_to(entries);
  const std::size_t first_pid = entries.size();
  pids_.append_to(entries);
  const std::size_t first_witnessed = entries.size();
  witness_.append_to(entries);
  poll(entries.data(), entries.size(), poll_timeout_ms(clock.now(), until));
  if (entries[0].revents != 0) {
    eventfd_t count = 0;
    eventfd_read(wake_.get(), &count);
  }
  pids_.note(entries.data() + first_pid, clock.now());
  witness_.note(entries.data() + first_witnessed);
}

void TcpBootstrap::take(Message message) {
  if (message.type == MessageType::kInquire) return witness_.take(message);
  deliver(std::move(message));
}

void TcpBootstrap::on_end(const Contact::End& end) {
  if (announces_leave_.load(std::memory_order_relaxed)) {
    // The coordinator may end before the last rank that leaves.
    if (end.is_cut_off) fences().cut_off(end.why);
    return disconnect(Status(Code::kClosed, "this rank has left the job"));
  }
  if (end.is_cut_off) {
    DUNLIN_WARN("bootstrap: rank {}: {}", rank().value(), end.why.message());
    return cut_off(end.why);
  }
  const bool is_peer = plan_.host != Rank() && job().rank != plan_.host;
  const std::string host =
      is_peer ? fmt::format("rank {}, which ran the coordinator,", plan_.host.value())
              : "the launcher";
  const std::string text = fmt::format("{} is gone: {}", host, end.why.message());
  DUNLIN_WARN("bootstrap: {}", text);
  // Before the notice of the death: a rank that waits for a mutex's holder looks at both.
  fences().lose_coordinator(Status(Code::kUnavailable, text));
  if (is_peer) {
    peers().mark(plan_.host, PeerState::kDead,
                 "its coordinator is gone: " + std::string(end.why.message()));
  }
  disconnect(Status(Code::kUnavailable, text));
}

}  // namespace dunlin::bootstrap
