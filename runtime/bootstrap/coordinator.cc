#include "runtime/bootstrap/coordinator.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/printable.h"
#include "runtime/bootstrap/service_thread.h"
#include "runtime/log.h"

namespace dunlin::bootstrap {

struct Coordinator::Connection {
  Connection(Fd fd, const Authenticator::Job& job, Authenticator::FindSession find, TimePoint until)
      : address(peer_address(fd.get())),
        socket(std::move(fd)),
        authenticator(job, std::move(find)),
        deadline(until) {}

  std::string address;
  FrameSocket socket;
  Authenticator authenticator;
  TimePoint deadline;  // to authenticate
  bool is_member = false;
  bool has_left = false;
  bool is_dropped = false;
  ConnectionEnd end = ConnectionEnd::kBroken;  // of one that is dropped
  short ready = 0;                             // events that poll() returned
};

Result<std::unique_ptr<Coordinator>> Coordinator::start(Options options) {
  if (options.size < 1) return Status(Code::kInvalidArgument, "a job has at least one rank");
  if (options.secret.empty()) return Status(Code::kInvalidArgument, "a job needs a secret");
  DUNLIN_ASSIGN(Fd listener, listen_on(options.listen));
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.is_open()) return Status::from_errno("eventfd", errno);
  if (options.job_id.empty()) options.job_id = "job-" + random_hex(6);
  std::unique_ptr<Coordinator> made(
      new Coordinator(std::move(options), std::move(listener), std::move(wake)));
  made->thread_ =
      start_service_thread("dunlin-coord", [coordinator = made.get()] { coordinator->run(); });
  return made;
}

Coordinator::Coordinator(Options options, Fd listener, Fd wake)
    : job_{options.size,
           std::move(options.job_id),
           std::move(options.secret),
           options.heartbeat,
           options.grace,
           ProcessId::of_self().to_string()},
      address_(std::move(options.listen)),
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      ledger_(options.size, options.heartbeat,
              [this](Rank to, const Message& message) { send(to, message); }),
      members_(static_cast<std::size_t>(options.size)),
      lives_(options.grace, [this](Rank to, const Message& message) { send(to, message); }) {}

Coordinator::~Coordinator() {
  post([this] { is_stopping_ = true; });
  thread_.join();
}

void Coordinator::post(std::function<void()> action) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(action));
  }
  eventfd_write(wake_.get(), 1);
}

void Coordinator::run_posted() {
  eventfd_t count = 0;
  eventfd_read(wake_.get(), &count);
  std::vector<std::function<void()>> actions;
  {
    const std::lock_guard lock(mutex_);
    actions.swap(posted_);
  }
  for (const auto& action : actions) action();
}

void Coordinator::declare_dead(Rank rank, std::string reason) {
  post([this, rank, reason = std::move(reason)] {
    // What it has sent last, such as that it leaves, may not have been read yet.
    if (Connection* const connection = members_[rank.index()].connection) {
      connection->ready |= POLLIN;
      serve(*connection);
    }
    ledger_.declare_dead(rank, reason);
    lives_.remove(rank);
  });
}

bool Coordinator::wait_until_empty(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  return emptier_.wait_until(lock, deadline, [this] { return active() == 0; });
}

void Coordinator::run() {
  for (;;) {
    wait_for_events();
    run_posted();
    if (is_stopping_) break;
    for (std::size_t i = 0; i < connections_.size(); ++i) serve(*connections_[i]);
    accept_connections();
    ledger_.tick(clock_.now());
    remove_dropped();
    declare_due(clock_.now());
    write_logs(clock_.now());
    const int active_now = ledger_.active();
    if (active_.exchange(active_now, std::memory_order_relaxed) != active_now) {
      const std::lock_guard lock(mutex_);
      emptier_.notify_all();
    }
  }
  finish_writing();
  write_logs(TimePoint::max() - kLogInterval);
}

void Coordinator::write_logs(TimePoint now) {
  for (PacedLog* const log : {&refusals_, &accept_errors_}) {
    if (const auto line = log->take(now)) DUNLIN_WARN("bootstrap: {}", *line);
  }
}

void Coordinator::wait_for_events() {
  const TimePoint now = clock_.now();
  const bool can_accept = now >= accept_again_;
  std::vector<pollfd> entries;
  entries.push_back({wake_.get(), POLLIN, 0});
  entries.push_back({can_accept ? listener_.get() : -1, POLLIN, 0});
  for (const auto& connection : connections_) {
    const short events = connection->socket.has_unsent() ? POLLIN | POLLOUT : POLLIN;
    entries.push_back({connection->socket.fd(), events, 0});
  }
  lives_.append_to(entries);
  poll(entries.data(), entries.size(), poll_timeout_ms(now, next_event(now)));
  lives_.note(entries.data() + connections_.size() + 2, clock_.now());
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    connections_[i]->ready = entries[i + 2].revents;
  }
}

TimePoint Coordinator::next_event(TimePoint now) const {
  TimePoint next = std::min({ledger_.next_tick(now), refusals_.next(), accept_errors_.next()});
  next = lives_.next(next);
  if (accept_again_ > now) next = std::min(next, accept_again_);
  for (const auto& connection : connections_) {
    if (!connection->is_member) next = std::min(next, connection->deadline);
  }
  return next;
}

std::size_t Coordinator::unauthenticated() const {
  return static_cast<std::size_t>(
      std::count_if(connections_.begin(), connections_.end(),
                    [](const auto& each) { return !each->is_member && !each->is_dropped; }));
}

void Coordinator::accept_connections() {
  std::size_t strangers = unauthenticated();
  for (std::size_t i = 0; i < kMaxAcceptedAtOnce; ++i) {
    Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.is_open()) {
      if (strangers == kMaxUnauthenticated) make_room();
      strangers = std::min(strangers + 1, kMaxUnauthenticated);
      connections_.push_back(std::make_unique<Connection>(
          std::move(socket), job_, [this](Rank rank) { return session_of(rank); },
          clock_.now() + kHandshakeTimeout));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN) {
      accept_errors_.note(
          std::string(Status::from_errno("cannot accept a connection", errno).message()));
      accept_again_ = clock_.now() + kConnectRetry;
    }
    return;
  }
}

// Drops the oldest stranger, of those that have sent nothing if there are any: a rank sends its
// HELLO at once. connections_ has the order of arrival.
void Coordinator::make_room() {
  Connection* oldest = nullptr;
  for (const auto& each : connections_) {
    if (each->is_member || each->is_dropped) continue;
    if (oldest == nullptr) oldest = each.get();
    if (each->authenticator.has_hello()) continue;
    oldest = each.get();
    break;
  }
  if (oldest == nullptr) return;
  refuse(*oldest, Status(Code::kUnavailable,
                         fmt::format("it gave way to a newer one, as {} have not authenticated",
                                     kMaxUnauthenticated)));
}

void Coordinator::serve(Connection& connection) {
  if (connection.is_dropped) return;
  if ((connection.ready & POLLOUT) != 0) {
    if (const Status status = connection.socket.flush(); !status) return drop(connection, status);
  }
  if (connection.ready != 0) {
    const Status received = connection.socket.receive();
    for (;;) {
      auto message = connection.socket.next();
      if (!message) return refuse(connection, message.status());
      if (!message->has_value()) break;
      if (const Status status = handle(connection, **message); !status) {
        return refuse(connection, status);
      }
      if (connection.is_dropped) return;
    }
    if (!received) return drop(connection, received);
  }
  if (!connection.is_member && clock_.now() >= connection.deadline) {
    refuse(connection, Status(Code::kDeadlineExceeded, "it did not authenticate in time"));
  }
}

Status Coordinator::handle(Connection& connection, const Message& message) {
  if (connection.is_member) return handle_member(connection, message);
  DUNLIN_ASSIGN(const Message answer, connection.authenticator.receive(message));
  if (!connection.authenticator.is_authenticated()) return connection.socket.send(answer);
  return connection.authenticator.resumes() ? resume(connection, answer)
                                            : admit(connection, answer);
}

Status Coordinator::handle_member(Connection& connection, const Message& message) {
  const Rank rank = connection.authenticator.rank();
  Session& session = members_[rank.index()].session;
  if (message.type == MessageType::kHeartbeat) {
    DUNLIN_TRY(session.acknowledge(message.number));
    if (message.request != kNoRequest) acknowledge(connection, message.request);
  } else {
    session.note_received(message);
    if (session.is_telling_due()) acknowledge(connection, kNoRequest);
  }
  if (message.type == MessageType::kTestimony) lives_.testify(rank, message, clock_.now());
  DUNLIN_TRY(ledger_.receive(rank, message, clock_.now()));
  if (message.type == MessageType::kLeave) {
    connection.has_left = true;
    lives_.remove(rank);
  }
  return Status::ok();
}

void Coordinator::acknowledge(Connection& connection, std::uint64_t request) {
  Session& session = members_[connection.authenticator.rank().index()].session;
  session.note_told();
  const Status status = connection.socket.send(
      {.type = MessageType::kHeartbeat, .request = request, .number = session.received()});
  if (!status) drop(connection, status);
}

std::optional<Resumption> Coordinator::session_of(Rank rank) const {
  if (rank.value() < 0 || rank.index() >= members_.size()) return std::nullopt;
  const Member& member = members_[rank.index()];
  if (!member.has_session) return std::nullopt;
  return Resumption{member.key, member.session.received()};
}

Status Coordinator::admit(Connection& connection, const Message& welcome) {
  const Rank rank = connection.authenticator.rank();
  DUNLIN_TRY(ledger_.admit(rank, clock_.now()));
  Member& member = members_[rank.index()];
  member.connection = &connection;
  member.key = connection.authenticator.session();
  member.has_session = true;
  connection.is_member = true;
  connection.socket.allow_body_bytes(kMaxBodyBytes);
  lives_.add(rank, connection.authenticator.process(), clock_.now());
  if (const Status status = connection.socket.send(welcome); !status) drop(connection, status);
  return Status::ok();
}

// The rank has a new connection, perhaps before this side has noticed the end of the old one.
Status Coordinator::resume(Connection& connection, const Message& welcome) {
  const Rank rank = connection.authenticator.rank();
  if (ledger_.state(rank) == PeerState::kDead || ledger_.state(rank) == PeerState::kLeft) {
    return {Code::kClosed, fmt::format("the other ranks count rank {} as {}", rank.value(),
                                       to_string(ledger_.state(rank)))};
  }
  Member& member = members_[rank.index()];
  DUNLIN_TRY(member.session.acknowledge(connection.authenticator.received_by_rank()));
  if (member.connection != nullptr) {
    member.connection->is_member = false;
    member.connection->is_dropped = true;
  }
  DUNLIN_INFO("bootstrap: rank {} is back at {}", rank.value(), connection.address);
  member.connection = &connection;
  connection.is_member = true;
  connection.socket.allow_body_bytes(kMaxBodyBytes);
  Status status = connection.socket.send(welcome);
  for (const Message& message : member.session.kept()) {
    if (status) status = connection.socket.send(message);
  }
  lives_.regain(rank);  // only now, as it may send to the rank
  if (!status) drop(connection, status);
  return Status::ok();
}

void Coordinator::refuse(Connection& connection, const Status& why) {
  if (!connection.is_member) {
    // A failure to send the reason does no harm: the connection is closed in any case.
    (void)connection.socket.send(connection.authenticator.rejection(why));
    return drop(connection, why);
  }
  end_session(connection.authenticator.rank(), why);
}

void Coordinator::end_session(Rank rank, const Status& why) {
  if (Connection* const connection = members_[rank.index()].connection) drop(*connection, why);
  post([this, rank, reason = "its session ended: " + printable(why.message())] {
    ledger_.declare_dead(rank, reason);
    lives_.remove(rank);
  });
}

// Only marks the connection. remove_dropped(), which run() calls, updates the ledger and the lists.
void Coordinator::drop(Connection& connection, const Status& why) {
  if (connection.is_dropped) return;
  connection.is_dropped = true;
  if (why.code() == Code::kClosed) connection.end = ConnectionEnd::kClosed;
  if (connection.has_left) return;
  if (!connection.is_member) {
    refusals_.note(fmt::format("connection from {} refused: {}", connection.address,
                               printable(why.message())));
    return;
  }
  DUNLIN_WARN("bootstrap: the connection of rank {} at {} ended: {}",
              connection.authenticator.rank().value(), connection.address,
              printable(why.message()));
}

void Coordinator::send(Rank to, const Message& message) {
  Member& member = members_[to.index()];
  Connection* const connection = member.connection;
  if (const Status status = member.session.keep(message, kMaxUnsentBytes); !status) {
    return end_session(to, {status.code(), "the peer does not read its messages"});
  }
  if (connection == nullptr || connection->is_dropped) return;
  if (const Status status = connection->socket.send(message); !status) drop(*connection, status);
}

void Coordinator::declare_due(TimePoint now) {
  for (const auto& [rank, reason] : lives_.take_due(now)) {
    ledger_.declare_dead(rank, reason);
  }
}

void Coordinator::remove_dropped() {
  // A death sends notices, and sending may drop further connections.
  for (std::size_t i = 0; i < connections_.size();) {
    if (!connections_[i]->is_dropped) {
      ++i;
      continue;
    }
    const std::unique_ptr<Connection> gone = std::move(connections_[i]);
    connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(i));
    if (gone->is_member) {
      const Rank rank = gone->authenticator.rank();
      members_[rank.index()].connection = nullptr;
      lives_.lose(rank, gone->end, clock_.now());
    }
    i = 0;
  }
}

// The last messages, such as a refusal or the notice that a rank has left, should still arrive.
void Coordinator::finish_writing() {
  const TimePoint deadline = clock_.now() + kAnswerSlack / 4;
  for (const auto& connection : connections_) {
    if (connection->is_member && !connection->is_dropped)
      (void)connection->socket.send({.type = MessageType::kEnd});
  }
  for (const auto& connection : connections_) {
    while (!connection->is_dropped && connection->socket.has_unsent() &&
           wait_for(connection->socket.fd(), POLLOUT, deadline)) {
      if (!connection->socket.flush()) break;
    }
    if (!connection->is_dropped) connection->socket.finish();
  }
  connections_.clear();
}

}  // namespace dunlin::bootstrap
