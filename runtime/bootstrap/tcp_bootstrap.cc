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

// The attempts of a rank to reach its coordinator. Until a coordinator has proven that it knows the
// secret, whatever answers may be another program, and the rank tries again.
class Search {
 public:
  Search(const JoinPlan& plan, TimePoint deadline)
      : plan_(plan),
        deadline_(deadline),
        request_{plan.job.rank, plan.job.size, plan.job.job_id, plan.secret} {}

  // The coordinator may start later than this process, so this tries until the deadline.
  Result<AuthenticatedSocket> run() {
    do {
      Duration pause = kConnectRetry;
      for (const Endpoint& endpoint : plan_.coordinator) {
        Refusal refusal = Refusal::kNone;
        auto connection = try_endpoint(endpoint, refusal);
        if (connection) return connection;
        last_ = std::move(connection).status().with_context(endpoint.to_string());
        if (refusal == Refusal::kByCoordinator) return last_;
        if (refusal == Refusal::kByAnyone) {
          note_refusal();
          pause = kRefusedRetry;
        }
      }
      std::this_thread::sleep_for(std::min<Duration>(pause, deadline_ - clock_.now()));
    } while (clock_.now() < deadline_);
    return give_up();
  }

 private:
  Result<AuthenticatedSocket> try_endpoint(const Endpoint& endpoint, Refusal& refusal) const {
    const TimePoint challenge_deadline = std::min(deadline_, clock_.now() + kChallengeTimeout);
    DUNLIN_ASSIGN(Fd fd, connect_to(endpoint, challenge_deadline));
    return authenticate(FrameSocket(std::move(fd)), request_, challenge_deadline, deadline_,
                        refusal);
  }

  // The user learns at once what may be its mistake.
  void note_refusal() {
    if (!refusal_) {
      DUNLIN_WARN("bootstrap: rank {} at {}; trying again until the timeout of {:g} s",
                  plan_.job.rank.value(), last_.message(), to_seconds(plan_.timeout));
    }
    refusal_ = last_;
  }

  Status give_up() const {
    const std::string host =
        plan_.host == Rank()
            ? "the launcher's coordinator"
            : fmt::format("rank {}, which runs the coordinator,", plan_.host.value());
    std::string why(last_.message());
    if (refusal_ && refusal_->message() != last_.message()) {
      why = fmt::format("{}; before, {}", why, refusal_->message());
    }
    const bool is_denied = refusal_ && refusal_->code() == Code::kPermissionDenied;
    return {
        is_denied ? Code::kPermissionDenied : Code::kDeadlineExceeded,
        fmt::format("{} has not answered within {:g} s: {}", host, to_seconds(plan_.timeout), why)};
  }

  const JoinPlan& plan_;
  const TimePoint deadline_;
  const JoinRequest request_;
  SteadyClock clock_;
  Status last_;
  std::optional<Status> refusal_;  // the last one without a proof
};

}  // namespace

Result<std::unique_ptr<Bootstrap>> TcpBootstrap::join(JoinPlan plan) {
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + plan.timeout;
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.is_open()) return Status::from_errno("eventfd", errno);
  auto connection = Search(plan, deadline).run();
  if (!connection) {
    return std::move(connection)
        .status()
        .with_context(fmt::format("rank {} cannot join", plan.job.rank.value()));
  }
  plan.job.job_id = connection->job_id;
  std::unique_ptr<TcpBootstrap> made(
      new TcpBootstrap(std::move(plan), std::move(*connection), std::move(wake)));
  DUNLIN_TRY(made->start(deadline - clock.now()));
  if (made->plan_.counts_local) DUNLIN_TRY(made->count_local());
  return std::unique_ptr<Bootstrap>(std::move(made));
}

TcpBootstrap::TcpBootstrap(JoinPlan plan, AuthenticatedSocket connection, Fd wake)
    : BootstrapClient(plan.job, derive_key(plan.secret, plan.job.job_id)),
      plan_(std::move(plan)),
      heartbeat_(connection.heartbeat),
      socket_(std::move(connection.socket)),
      pids_(peers(), job().rank),
      wake_(std::move(wake)) {
  listener_ = peers().add_listener([this](Rank) { eventfd_write(wake_.get(), 1); });
  monitor_ = start_service_thread("dunlin-monitor", [this] { monitor(); });
}

TcpBootstrap::~TcpBootstrap() {
  leave();
}

void TcpBootstrap::leave() noexcept {
  if (std::exchange(has_left_, true)) return;
  announces_leave_.store(true, std::memory_order_relaxed);
  announce_leave();
  {
    const std::lock_guard lock(outbox_mutex_);
    is_leaving_ = true;
  }
  eventfd_write(wake_.get(), 1);
  monitor_.join();
  peers().remove_listener(listener_);
  disconnect(Status(Code::kClosed, "this rank has left the job"));
  if (plan_.hosted) {
    if (!plan_.hosted->wait_until_empty(SteadyClock().now() + plan_.linger)) {
      DUNLIN_WARN("bootstrap: rank {} stops the coordinator, which {} other ranks still need",
                  rank().value(), plan_.hosted->active());
    }
    plan_.hosted.reset();
  }
  if (plan_.on_leave) plan_.on_leave();
}

void TcpBootstrap::transmit(const Message& message) {
  {
    const std::lock_guard lock(outbox_mutex_);
    outbox_.push_back(message);
  }
  eventfd_write(wake_.get(), 1);
}

void TcpBootstrap::monitor() {
  const SteadyClock clock;
  TimePoint next_heartbeat = clock.now();
  for (;;) {
    if (socket_.is_open()) {
      if (const Status status = exchange(); !status) on_coordinator_failure(status);
    }
    {
      const std::lock_guard lock(outbox_mutex_);
      if (is_leaving_) return;
    }
    pids_.refresh();
    pids_.settle(clock.now());
    if (socket_.is_open() && clock.now() >= next_heartbeat) {
      next_heartbeat = clock.now() + heartbeat_;
      if (const Status status = socket_.send({}); !status) on_coordinator_failure(status);
    }
    wait_for_events(pids_.next(next_heartbeat));
  }
}

void TcpBootstrap::wait_for_events(TimePoint until) {
  const SteadyClock clock;
  const short events = socket_.has_unsent() ? POLLIN | POLLOUT : POLLIN;
  std::vector<pollfd> entries{{wake_.get(), POLLIN, 0}, {socket_.fd(), events, 0}};
  pids_.append_to(entries);
  poll(entries.data(), entries.size(), poll_timeout_ms(clock.now(), until));
  if (entries[0].revents != 0) {
    eventfd_t count = 0;
    eventfd_read(wake_.get(), &count);
  }
  pids_.note(entries.data() + 2, clock.now());
}

Status TcpBootstrap::exchange() {
  DUNLIN_TRY(send_outbox());
  const Status received = socket_.receive();
  for (;;) {
    DUNLIN_ASSIGN(std::optional<Message> message, socket_.next());
    if (!message) return received;
    deliver(std::move(*message));
  }
}

Status TcpBootstrap::send_outbox() {
  std::vector<Message> messages;
  {
    const std::lock_guard lock(outbox_mutex_);
    messages.swap(outbox_);
  }
  for (const Message& message : messages) DUNLIN_TRY(socket_.send(message));
  return socket_.flush();
}

void TcpBootstrap::on_coordinator_failure(const Status& why) {
  socket_.close();
  if (announces_leave_.load(std::memory_order_relaxed)) {
    // The coordinator may end before the last rank that leaves.
    return disconnect(Status(Code::kClosed, "this rank has left the job"));
  }
  const bool is_peer = plan_.host != Rank() && job().rank != plan_.host;
  const std::string host =
      is_peer ? fmt::format("rank {}, which ran the coordinator,", plan_.host.value())
              : "the launcher";
  const std::string text = fmt::format("{} is gone: {}", host, why.message());
  DUNLIN_WARN("bootstrap: {}", text);
  if (is_peer) {
    peers().mark(plan_.host, PeerState::kDead,
                 "its coordinator is gone: " + std::string(why.message()));
  }
  disconnect(Status(Code::kUnavailable, text));
}

}  // namespace dunlin::bootstrap
