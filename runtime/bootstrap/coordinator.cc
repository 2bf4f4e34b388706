#include "runtime/bootstrap/coordinator.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/printable.h"
#include "runtime/bootstrap/service_thread.h"
#include "runtime/descriptor_limit.h"
#include "runtime/log.h"

namespace dunlin::bootstrap {

namespace {

// Descriptors that the process of a coordinator has open beside those of the ranks.
constexpr std::uint64_t kOtherDescriptors = 256;

}  // namespace

struct Coordinator::Connection {
  Connection(std::uint64_t arrival, Fd fd, Authenticator handshake, TimePoint until)
      : number(arrival),
        address(peer_address(fd.get())),
        socket(std::move(fd)),
        authenticator(std::move(handshake)),
        deadline(until) {}

  const std::uint64_t number;
  std::string address;
  FrameSocket socket;
  Authenticator authenticator;
  TimePoint deadline;  // to authenticate
  bool is_member = false;
  bool has_left = false;
  bool is_dropped = false;
  ConnectionEnd end = ConnectionEnd::kBroken;  // of one that is dropped
  bool awaits_output = false;                  // see watch_output()
};

Result<std::unique_ptr<Coordinator>> Coordinator::start(Options options) {
  if (options.size < 1) return Status(Code::kInvalidArgument, "a job has at least one rank");
  if (options.founders == 0) options.founders = options.size;
  if (options.founders < 0 || options.founders > options.size) {
    return Status(Code::kInvalidArgument, fmt::format("{} ranks cannot start a job of at most {}",
                                                      options.founders, options.size));
  }
  if (options.secret.empty()) return Status(Code::kInvalidArgument, "a job needs a secret");
  DUNLIN_ASSIGN(Fd listener, listen_on(options.listen));
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.is_open()) return Status::from_errno("eventfd", errno);
  if (options.job_id.empty()) options.job_id = "job-" + random_hex(6);
  DUNLIN_ASSIGN(EventQueue events, EventQueue::create());
  DUNLIN_TRY(events.add(wake.get(), {kWake}, EPOLLIN));
  DUNLIN_TRY(events.add(listener.get(), {kListener}, EPOLLIN));
  // Each rank takes a descriptor, a second one where its process can be watched, and there may be
  // as many strangers.
  const std::uint64_t wanted = 3 * static_cast<std::uint64_t>(options.size) + kOtherDescriptors;
  if (const auto limit = raise_descriptor_limit(wanted); limit < wanted) {
    DUNLIN_WARN(
        "bootstrap: the coordinator of {} ranks may take {} open files, and this process "
        "may have {} (ulimit -n)",
        options.size, wanted, limit);
  }
  std::unique_ptr<Coordinator> made(
      new Coordinator(std::move(options), std::move(listener), std::move(wake), std::move(events)));
  DUNLIN_ASSIGN(made->thread_, start_service_thread("dunlin-coord", [coordinator = made.get()] {
                  coordinator->run();
                }));
  return made;
}

Coordinator::Coordinator(Options options, Fd listener, Fd wake, EventQueue events)
    : job_{options.size,
           options.founders,
           std::move(options.job_id),
           std::move(options.secret),
           options.heartbeat,
           options.grace,
           ProcessId::of_self().to_string()},
      address_(std::move(options.listen)),
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      events_(std::move(events)),
      ledger_({options.size, options.founders}, options.heartbeat,
              [this](Rank to, const Message& message) { send(to, message); }),
      members_(static_cast<std::size_t>(options.size)),
      lives_(options.grace, [this](Rank to, const Message& message) { send(to, message); }) {}

Coordinator::~Coordinator() {
  post([this] { is_stopping_ = true; });
  if (thread_.joinable()) thread_.join();
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
      serve(*connection, EPOLLIN);
    }
    ended_.emplace_back(rank, reason);
  });
}

bool Coordinator::wait_until_empty(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  return emptier_.wait_until(lock, deadline, [this] { return active() == 0; });
}

void Coordinator::run() {
  for (;;) {
    const auto events = wait_for_events();
    run_posted();
    if (is_stopping_) break;
    for (const auto& event : events) handle_event(event);
    expire_strangers(clock_.now());
    if (listens_again_ && clock_.now() >= *listens_again_) resume_listening();
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

void Coordinator::watch_output(Connection& connection) {
  const bool awaits = connection.socket.has_unsent();
  if (awaits == connection.awaits_output || connection.is_dropped) return;
  const Status changed = events_.change(connection.socket.fd(), {kConnection, connection.number},
                                        awaits ? EPOLLIN | EPOLLOUT : EPOLLIN);
  if (!changed) return drop(connection, changed);
  connection.awaits_output = awaits;
}

std::vector<EventQueue::Event> Coordinator::wait_for_events() {
  const TimePoint now = clock_.now();
  auto events = events_.wait(poll_timeout_ms(now, next_event(now)));
  std::stable_partition(events.begin(), events.end(), [](const EventQueue::Event& event) {
    return event.source.kind != kListener;
  });
  return events;
}

void Coordinator::handle_event(const EventQueue::Event& event) {
  switch (event.source.kind) {
    case kListener:
      return accept_connections();
    case kConnection:
      // It may have been removed since the event.
      if (const auto found = connections_.find(event.source.number); found != connections_.end())
        serve(*found->second, event.events);
      return;
    case kProcess: {
      const Rank rank(static_cast<int>(event.source.number));
      unwatch_process(rank);
      return lives_.note_end(rank, clock_.now());
    }
    default:  // kWake: run_posted() has taken it
      return;
  }
}

void Coordinator::unwatch_process(Rank rank) {
  if (const int process = lives_.descriptor(rank); process >= 0) events_.remove(process);
}

TimePoint Coordinator::next_event(TimePoint now) const {
  TimePoint next = std::min({ledger_.next_tick(now), refusals_.next(), accept_errors_.next()});
  next = lives_.next(next);
  if (listens_again_) next = std::min(next, *listens_again_);
  if (!strangers_.empty()) next = std::min(next, connections_.at(*strangers_.begin())->deadline);
  return next;
}

std::size_t Coordinator::most_strangers() const {
  return std::max(kMaxUnauthenticated, members_.size());
}

void Coordinator::accept_connections() {
  for (std::size_t i = 0; i < kMaxAcceptedAtOnce; ++i) {
    Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.is_open()) {
      let_in(std::move(socket));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN) {
      accept_errors_.note(
          std::string(Status::from_errno("cannot accept a connection", errno).message()));
      pause_listening();
    }
    return;
  }
}

void Coordinator::pause_listening() {
  events_.remove(listener_.get());
  listens_again_ = clock_.now() + kConnectRetry;
}

void Coordinator::resume_listening() {
  listens_again_.reset();
  // The kernel has to have memory for one entry, as before. If it has not, the next try is due.
  if (!events_.add(listener_.get(), {kListener}, EPOLLIN))
    listens_again_ = clock_.now() + kConnectRetry;
}

void Coordinator::let_in(Fd socket) {
  if (strangers_.size() >= most_strangers()) make_room();
  const std::uint64_t number = ++arrivals_;
  Authenticator authenticator(
      job_, [this](Rank rank) { return session_of(rank); }, [this] { return ledger_.free_rank(); });
  auto made = std::make_unique<Connection>(number, std::move(socket), std::move(authenticator),
                                           clock_.now() + kHandshakeTimeout);
  if (const Status status = events_.add(made->socket.fd(), {kConnection, number}, EPOLLIN); !status)
    return accept_errors_.note(std::string(status.message()));
  connections_.emplace(number, std::move(made));
  strangers_.insert(number);
}

// Drops the oldest stranger, of those that have sent nothing if there are any: a rank sends its
// HELLO at once.
void Coordinator::make_room() {
  Connection* oldest = nullptr;
  for (const std::uint64_t number : strangers_) {
    Connection& each = *connections_.at(number);
    if (oldest == nullptr) oldest = &each;
    if (each.authenticator.has_hello()) continue;
    oldest = &each;
    break;
  }
  if (oldest == nullptr) return;
  refuse(*oldest, Status(Code::kUnavailable,
                         fmt::format("it gave way to a newer one, as {} have not authenticated",
                                     most_strangers())));
}

// They have the same time each, so the oldest is the first to be late.
void Coordinator::expire_strangers(TimePoint now) {
  while (!strangers_.empty()) {
    Connection& oldest = *connections_.at(*strangers_.begin());
    if (now < oldest.deadline) return;
    refuse(oldest, Status(Code::kDeadlineExceeded, "it did not authenticate in time"));
  }
}

void Coordinator::serve(Connection& connection, std::uint32_t events) {
  if (connection.is_dropped) return;
  if ((events & EPOLLOUT) != 0) {
    if (const Status status = connection.socket.flush(); !status) return drop(connection, status);
    watch_output(connection);
    if (connection.is_dropped) return;
  }
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
  if (!received) drop(connection, received);
}

Status Coordinator::handle(Connection& connection, const Message& message) {
  if (connection.is_member) return handle_member(connection, message);
  DUNLIN_ASSIGN(const Message answer, connection.authenticator.receive(message));
  if (!connection.authenticator.is_authenticated()) {
    DUNLIN_TRY(connection.socket.send(answer));
    watch_output(connection);
    return Status::ok();
  }
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
    unwatch_process(rank);
    lives_.remove(rank);
  }
  return Status::ok();
}

void Coordinator::acknowledge(Connection& connection, std::uint64_t request) {
  Session& session = members_[connection.authenticator.rank().index()].session;
  session.note_told();
  const Status status = connection.socket.send(
      {.type = MessageType::kHeartbeat, .request = request, .number = session.received()});
  if (!status) return drop(connection, status);
  watch_output(connection);
}

std::optional<Resumption> Coordinator::session_of(Rank rank) const {
  if (rank.value() < 0 || rank.index() >= members_.size()) return std::nullopt;
  const Member& member = members_[rank.index()];
  if (!member.has_session) return std::nullopt;
  return Resumption{member.key, member.session.received()};
}

Status Coordinator::admit(Connection& connection, const Message& welcome) {
  const Rank rank = connection.authenticator.rank();
  const ProcessId& process = connection.authenticator.process();
  DUNLIN_TRY(ledger_.admit(rank, clock_.now(), process));
  Member& member = members_[rank.index()];
  member.connection = &connection;
  member.key = connection.authenticator.session();
  member.has_session = true;
  connection.is_member = true;
  strangers_.erase(connection.number);
  connection.socket.allow_body_bytes(kMaxBodyBytes);
  const int pidfd = lives_.add(rank, process, clock_.now());
  if (pidfd >= 0) {
    const Status watched = events_.add(pidfd, {kProcess, rank.index()}, EPOLLIN);
    // Its end would never be known: a rank that this process can see is not judged by time.
    if (!watched) end_session(rank, watched);
  }
  if (const Status status = connection.socket.send(welcome); !status) drop(connection, status);
  watch_output(connection);
  return Status::ok();
}

// The rank has a new connection, perhaps before this side has noticed the end of the old one.
Status Coordinator::resume(Connection& connection, const Message& welcome) {
  const Rank rank = connection.authenticator.rank();
  if (ledger_.is_gone(rank)) {
    return {Code::kClosed, fmt::format("the other ranks count rank {} as {}", rank.value(),
                                       to_string(ledger_.state(rank)))};
  }
  Member& member = members_[rank.index()];
  DUNLIN_TRY(member.session.acknowledge(connection.authenticator.received_by_rank()));
  if (member.connection != nullptr) {
    member.connection->is_member = false;
    member.connection->is_dropped = true;
    dropped_.push_back(member.connection->number);
  }
  DUNLIN_INFO("bootstrap: rank {} is back at {}", rank.value(), connection.address);
  member.connection = &connection;
  connection.is_member = true;
  strangers_.erase(connection.number);
  connection.socket.allow_body_bytes(kMaxBodyBytes);
  Status status = connection.socket.send(welcome);
  for (const Message& message : member.session.kept()) {
    if (status) status = connection.socket.send(message);
  }
  lives_.regain(rank);  // only now, as it may send to the rank
  if (!status) drop(connection, status);
  watch_output(connection);
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
  // Not now, as the ledger may be sending. The next turn is at once.
  ended_.emplace_back(rank, "its session ended: " + printable(why.message()));
  eventfd_write(wake_.get(), 1);
}

// Only marks the connection. remove_dropped(), which run() calls, updates the ledger and the lists.
void Coordinator::drop(Connection& connection, const Status& why) {
  if (connection.is_dropped) return;
  connection.is_dropped = true;
  dropped_.push_back(connection.number);
  strangers_.erase(connection.number);
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
  if (const Status status = connection->socket.send(message); !status)
    return drop(*connection, status);
  watch_output(*connection);
}

void Coordinator::declare_due(TimePoint now) {
  auto deaths = std::exchange(ended_, {});
  for (auto& [rank, reason] : lives_.take_due(now)) deaths.emplace_back(rank, std::move(reason));
  if (deaths.empty()) return;
  ledger_.declare_dead(deaths);
  for (const auto& [rank, reason] : deaths) {
    unwatch_process(rank);
    lives_.remove(rank);
    members_[rank.index()].session = {};  // it will not come back
  }
}

void Coordinator::remove_dropped() {
  // A death sends notices, and sending may drop further connections.
  while (!dropped_.empty()) {
    const auto gone = connections_.extract(dropped_.back());
    dropped_.pop_back();
    if (gone.empty()) continue;
    events_.remove(gone.mapped()->socket.fd());
    if (!gone.mapped()->is_member) continue;
    const Rank rank = gone.mapped()->authenticator.rank();
    members_[rank.index()].connection = nullptr;
    lives_.lose(rank, gone.mapped()->end, clock_.now());
  }
}

// The last messages, such as a refusal or the notice that a rank has left, should still arrive.
void Coordinator::finish_writing() {
  const TimePoint deadline = clock_.now() + kAnswerSlack / 4;
  ledger_.tell_departures();
  for (const auto& [number, connection] : connections_) {
    if (connection->is_member && !connection->is_dropped)
      (void)connection->socket.send({.type = MessageType::kEnd});
  }
  for (const auto& [number, connection] : connections_) {
    while (!connection->is_dropped && connection->socket.has_unsent() &&
           wait_for(connection->socket.fd(), POLLOUT, deadline)) {
      if (!connection->socket.flush()) break;
    }
    if (!connection->is_dropped) connection->socket.finish();
  }
  connections_.clear();
}

}  // namespace dunlin::bootstrap
