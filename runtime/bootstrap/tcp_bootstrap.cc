#include "runtime/bootstrap/tcp_bootstrap.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/service_thread.h"
#include "runtime/log.h"

namespace dunlin::bootstrap {
namespace {

// Failures of a handshake that another attempt may not meet: nobody or somebody else answers there.
bool may_pass(const Status& status) {
  switch (status.code()) {
    case Code::kIoError:
    case Code::kClosed:
    case Code::kCorrupted:
    case Code::kDeadlineExceeded:
      return true;
    default:
      return false;
  }
}

// One attempt at one place. `is_final` tells that another attempt is pointless.
Result<Session> try_endpoint(const Endpoint& endpoint, const JoinRequest& request,
                             TimePoint deadline, bool& is_final) {
  const TimePoint patience = std::min(deadline, SteadyClock().now() + kChallengeTimeout);
  DUNLIN_ASSIGN(Fd fd, connect_to(endpoint, patience));
  auto session = introduce(FrameSocket(std::move(fd)), request, patience, deadline);
  is_final = !session && !may_pass(session.status());
  return session;
}

// The coordinator may come up later than this process: tries until the deadline.
Result<Session> find_coordinator(const JoinPlan& plan, TimePoint deadline) {
  const SteadyClock clock;
  const JoinRequest request{plan.job.rank, plan.job.size, plan.job.job_id, plan.secret};
  Status last;
  do {
    for (const Endpoint& endpoint : plan.coordinator) {
      bool is_final = false;
      auto session = try_endpoint(endpoint, request, deadline, is_final);
      if (session) return session;
      last = std::move(session).status().with_context(endpoint.to_string());
      if (is_final) return last;
    }
    std::this_thread::sleep_for(std::min<Duration>(kConnectRetry, deadline - clock.now()));
  } while (clock.now() < deadline);
  const std::string host =
      plan.host == Rank() ? "the launcher's coordinator"
                          : fmt::format("rank {}, which runs the coordinator,", plan.host.value());
  return Status(Code::kDeadlineExceeded, fmt::format("{} has not answered within {:g} s: {}", host,
                                                     to_seconds(plan.timeout), last.message()));
}

}  // namespace

Result<std::unique_ptr<Bootstrap>> TcpBootstrap::join(JoinPlan plan) {
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + plan.timeout;
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.is_open()) return Status::from_errno("eventfd", errno);
  auto session = find_coordinator(plan, deadline);
  if (!session) {
    return std::move(session).status().with_context(
        fmt::format("rank {} cannot join", plan.job.rank.value()));
  }
  plan.job.job_id = session->job_id;
  std::unique_ptr<TcpBootstrap> made(
      new TcpBootstrap(std::move(plan), std::move(*session), std::move(wake)));
  DUNLIN_TRY(made->start(deadline - clock.now()));
  if (made->plan_.counts_local) DUNLIN_TRY(made->count_local());
  return std::unique_ptr<Bootstrap>(std::move(made));
}

TcpBootstrap::TcpBootstrap(JoinPlan plan, Session session, Fd wake)
    : BootstrapClient(plan.job),
      plan_(std::move(plan)),
      heartbeat_(session.heartbeat),
      socket_(std::move(session.socket)),
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
  says_goodbye_.store(true, std::memory_order_relaxed);
  say_goodbye();
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
      DUNLIN_WARN("bootstrap: rank {} ends while {} other ranks still need its coordinator",
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
      if (const Status status = exchange(); !status) lose_coordinator(status);
    }
    {
      const std::lock_guard lock(outbox_mutex_);
      if (is_leaving_) return;
    }
    pids_.refresh();
    pids_.settle(clock.now());
    if (socket_.is_open() && clock.now() >= next_heartbeat) {
      next_heartbeat = clock.now() + heartbeat_;
      if (const Status status = socket_.send({}); !status) lose_coordinator(status);
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

void TcpBootstrap::lose_coordinator(const Status& why) {
  socket_.close();
  if (says_goodbye_.load(std::memory_order_relaxed)) {
    // The last to leave may see the end of the coordinator before it has ended itself.
    return disconnect(Status(Code::kClosed, "this rank has left the job"));
  }
  const bool is_peer = plan_.host != Rank() && job().rank != plan_.host;
  const std::string who =
      is_peer ? fmt::format("rank {}, which ran the coordinator,", plan_.host.value())
              : "the launcher";
  const std::string text = fmt::format("{} is gone: {}", who, why.message());
  DUNLIN_WARN("bootstrap: {}", text);
  if (is_peer) {
    peers().mark(plan_.host, PeerState::kDead,
                 "its coordinator is gone: " + std::string(why.message()));
  }
  disconnect(Status(Code::kUnavailable, text));
}

}  // namespace dunlin::bootstrap
