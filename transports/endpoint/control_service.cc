#include "transports/endpoint/control_service.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/printable.h"
#include "runtime/bootstrap/service_thread.h"
#include "runtime/log.h"
#include "transports/endpoint/constants.h"

namespace dunlin::transport::endpoint {

using bootstrap::FrameSocket;
using bootstrap::JobLedger;
using bootstrap::Message;
using bootstrap::MessageType;

namespace {

bool is_in_another_container(const bootstrap::ProcessId& process) {
  const auto self = bootstrap::ProcessId::of_self();
  return !self.kernel().empty() && self.kernel() == process.kernel() && self.space != process.space;
}

}  // namespace

ControlLine::ControlLine(Rank rank, std::string job_id, const JobKey& key, FrameSocket socket,
                         const bootstrap::ProcessId& process)
    : rank_(rank),
      job_id_(std::move(job_id)),
      key_(key),
      spans_pid_namespaces_(is_in_another_container(process)),
      socket_(std::move(socket)),
      peer_(process),
      watch_(bootstrap::watch_process(process)) {
  socket_.allow_body_bytes(bootstrap::kMaxBodyBytes);
}

struct ControlService::Guest {
  Guest(FrameSocket from, std::string secret, std::string process, TimePoint until)
      : socket(std::move(from)),
        address(bootstrap::peer_address(socket.fd())),
        job{.size = 2,
            .founders = 2,
            .id = "pair-" + bootstrap::random_hex(8),
            .secret = std::move(secret),
            .process = std::move(process)},
        authenticator(job, [](Rank) { return std::nullopt; }),
        deadline(until) {}
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;

  FrameSocket socket;
  const std::string address;
  const bootstrap::Authenticator::Job job;
  bootstrap::Authenticator authenticator;
  const TimePoint deadline;
};

Result<std::unique_ptr<Dial>> Dial::start(const Blob& blob, ControlService& service) {
  std::unique_ptr<Dial> dial(new Dial(blob, service));
  DUNLIN_ASSIGN(dial->thread_,
                bootstrap::start_service_thread("dunlin-dial", [raw = dial.get()] { raw->run(); }));
  return dial;
}

Dial::Dial(const Blob& blob, ControlService& service)
    : blob_(blob), service_(service), result_(Status(Code::kInternal, "no result yet")) {}

Dial::~Dial() {
  cancel();
  if (thread_.joinable()) thread_.join();
}

void Dial::cancel() {
  const std::lock_guard lock(mutex_);
  is_canceled_ = true;
  if (in_handshake_.is_open()) shutdown(in_handshake_.get(), SHUT_RDWR);
}

Result<std::shared_ptr<ControlLine>> Dial::result() {
  if (!is_over()) return Status::busy();
  return std::move(result_);
}

void Dial::run() {
  result_ = dial();
  is_done_.store(true, std::memory_order_release);
  service_.raise_event();
}

Result<std::shared_ptr<ControlLine>> Dial::dial() {
  const std::vector<std::string> hosts = blob_.hosts();
  if (hosts.empty())
    return Status(Code::kUnavailable, "the endpoint listens for peers on its own host only");
  bootstrap::JoinRequest request;
  request.rank = Rank(kDialer);
  request.size = 2;
  request.secret = bootstrap::to_hex(blob_.key);
  request.process = bootstrap::ProcessId::of_self().to_string();
  std::string refusals;
  for (const std::string& host : hosts) {
    const bootstrap::Endpoint place{host, blob_.port};
    auto line = dial(place, request);
    if (line) return line;
    refusals += fmt::format("{}{}: {}", refusals.empty() ? "" : "; ", place.to_string(),
                            line.status().message());
  }
  return Status(Code::kUnavailable, fmt::format("the endpoint cannot be reached: {}", refusals));
}

Result<std::shared_ptr<ControlLine>> Dial::dial(const bootstrap::Endpoint& place,
                                                const bootstrap::JoinRequest& request) {
  const auto canceled = [] { return Status(Code::kClosed, "nobody waits for it any more"); };
  if (const std::lock_guard lock(mutex_); is_canceled_) return canceled();
  const SteadyClock clock;
  DUNLIN_ASSIGN(Fd socket, bootstrap::connect_to(place, clock.now() + kDialTime));
  {
    const std::lock_guard lock(mutex_);
    if (is_canceled_) return canceled();
    in_handshake_ = Fd(fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  }
  const TimePoint deadline = clock.now() + kHandshakeTime;
  bootstrap::Refusal refusal{};
  auto authenticated =
      bootstrap::authenticate(FrameSocket(std::move(socket)), request, deadline, deadline, refusal);
  {
    const std::lock_guard lock(mutex_);
    in_handshake_.reset();
  }
  DUNLIN_ASSIGN(auto made, std::move(authenticated));
  const JobKey key = bootstrap::derive_key(request.secret, made.job_id);
  return std::make_shared<ControlLine>(Rank(kDialer), std::move(made.job_id), key,
                                       std::move(made.socket), made.coordinator);
}

Result<std::unique_ptr<ControlService>> ControlService::create(const Key& key,
                                                               const std::string& host) {
  bootstrap::Endpoint place{host, 0};
  DUNLIN_ASSIGN(Fd listener, bootstrap::listen_on(place));
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.is_open() || !event.is_open()) return Status::from_errno("eventfd", errno);
  std::unique_ptr<ControlService> service(
      new ControlService(key, std::move(listener), place.port, std::move(wake), std::move(event)));
  DUNLIN_ASSIGN(service->thread_, bootstrap::start_service_thread(
                                      "dunlin-endpoint", [raw = service.get()] { raw->run(); }));
  return service;
}

ControlService::ControlService(const Key& key, Fd listener, std::uint16_t port, Fd wake, Fd event)
    : secret_(bootstrap::to_hex(key)),
      process_(bootstrap::ProcessId::of_self().to_string()),
      port_(port),
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      event_(std::move(event)),
      refusals_("connections refused") {}

ControlService::~ControlService() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

void ControlService::wake() {
  eventfd_write(wake_.get(), 1);
}

void ControlService::raise_event() {
  eventfd_write(event_.get(), 1);
}

void ControlService::clear_event() {
  eventfd_t count = 0;
  eventfd_read(event_.get(), &count);
}

std::shared_ptr<ControlLine> ControlService::accept() {
  const std::lock_guard lock(mutex_);
  if (arrived_.empty()) return nullptr;
  auto line = std::move(arrived_.front());
  arrived_.erase(arrived_.begin());
  return line;
}

void ControlService::add(std::shared_ptr<ControlLine> line) {
  {
    const std::lock_guard lock(mutex_);
    dialed_.push_back(std::move(line));
  }
  wake();
}

void ControlService::attach(ControlLine& line, ControlLine::Client& client) {
  const std::lock_guard lock(mutex_);
  line.client_ = &client;
  for (Message& message : std::exchange(line.undelivered_, {})) client.take(std::move(message));
  if (line.lost_) client.lose(*line.lost_);
}

void ControlService::detach(ControlLine& line) {
  {
    const std::lock_guard lock(mutex_);
    line.client_ = nullptr;
    line.is_detached_ = true;
  }
  wake();
}

bool ControlService::is_detached(ControlLine& line) {
  const std::lock_guard lock(mutex_);
  return line.is_detached_;
}

void ControlService::send(ControlLine& line, const Message& message) {
  {
    const std::lock_guard lock(line.outbox_mutex_);
    line.outbox_.push_back(message);
  }
  wake();
}

void ControlService::run() {
  for (;;) {
    wait_for_events();
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_) break;
    }
    take_dialed();
    accept_guests();
    std::erase_if(guests_, [this](const auto& guest) { return !serve(*guest); });
    std::erase_if(lines_, [this](const auto& line) { return !serve(*line); });
    if (const auto line = refusals_.take(clock_.now())) DUNLIN_WARN("endpoint: {}", *line);
  }
  finish();
}

void ControlService::wait_for_events() {
  const TimePoint now = clock_.now();
  TimePoint next = refusals_.next();
  const bool can_accept = now >= accept_again_;
  if (!can_accept) next = std::min(next, accept_again_);
  std::vector<pollfd> entries{{wake_.get(), POLLIN, 0},
                              {can_accept ? listener_.get() : -1, POLLIN, 0}};
  for (const auto& guest : guests_) {
    entries.push_back({guest->socket.fd(), POLLIN, 0});
    next = std::min(next, guest->deadline);
  }
  for (const auto& line : lines_) {
    const short wanted = line->socket_.has_unsent() ? POLLIN | POLLOUT : POLLIN;
    entries.push_back({line->socket_.fd(), wanted, 0});
    entries.push_back({line->watch_.pidfd.get(), POLLIN, 0});
    if (line->ledger_ != nullptr) next = std::min(next, line->ledger_->next_tick(now));
    next = std::min(next, line->close_at_);
  }
  poll(entries.data(), entries.size(), bootstrap::poll_timeout_ms(now, next));
  eventfd_t count = 0;
  eventfd_read(wake_.get(), &count);
}

void ControlService::take_dialed() {
  const std::lock_guard lock(mutex_);
  for (auto& line : std::exchange(dialed_, {})) lines_.push_back(std::move(line));
}

void ControlService::accept_guests() {
  for (std::size_t i = 0; i < kMaxGuests; ++i) {
    Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) return;
      refusals_.note(
          std::string(Status::from_errno("cannot accept a connection", errno).message()));
      accept_again_ = clock_.now() + bootstrap::kConnectRetry;
      return;
    }
    if (guests_.size() == kMaxGuests) {
      refusals_.note(fmt::format("{} gave way to a newer connection", guests_.front()->address));
      guests_.erase(guests_.begin());
    }
    guests_.push_back(std::make_unique<Guest>(FrameSocket(std::move(socket)), secret_, process_,
                                              clock_.now() + kHandshakeTime));
  }
}

bool ControlService::serve(Guest& guest) {
  Status status = guest.socket.receive();
  for (;;) {
    auto message = guest.socket.next();
    if (!message) {
      status = message.status();
      break;
    }
    if (!message->has_value()) break;
    auto is_line = take(guest, **message);
    if (is_line && *is_line) return false;
    if (!is_line) {
      status = is_line.status();
      (void)guest.socket.send(guest.authenticator.rejection(status));
      break;
    }
  }
  if (status.is_ok() && clock_.now() >= guest.deadline)
    status = Status(Code::kDeadlineExceeded, "it did not authenticate in time");
  if (status.is_ok()) return true;
  refusals_.note(
      fmt::format("{}: {}", guest.address, bootstrap::printable(std::string(status.message()))));
  return false;
}

Result<bool> ControlService::take(Guest& guest, const Message& message) {
  DUNLIN_ASSIGN(const Message answer, guest.authenticator.receive(message));
  if (guest.authenticator.is_authenticated() && guest.authenticator.rank() != Rank(kDialer))
    return Status(Code::kCorrupted, "it claims the rank of the side that listens");
  DUNLIN_TRY(guest.socket.send(answer));
  if (!guest.authenticator.is_authenticated()) return false;
  auto line = std::make_shared<ControlLine>(Rank(kListener), guest.job.id,
                                            bootstrap::derive_key(secret_, guest.job.id),
                                            std::move(guest.socket), guest.authenticator.process());
  ControlLine* const raw = line.get();
  line->ledger_ = std::make_unique<JobLedger>(JobLedger::Places{2, 2}, Duration::zero(),
                                              [this, raw](Rank to, const Message& sent) {
                                                if (to == Rank(kListener)) return give(*raw, sent);
                                                send_to_peer(*raw, sent);
                                              });
  // Both sides exist: the job of the two has started.
  for (const int rank : {kListener, kDialer}) {
    DUNLIN_TRY(line->ledger_->admit(Rank(rank), clock_.now()));
    DUNLIN_TRY(line->ledger_->receive(
        Rank(rank), {.type = MessageType::kJoin, .number = ~std::uint64_t{0}}, clock_.now()));
  }
  lines_.push_back(line);
  {
    const std::lock_guard lock(mutex_);
    arrived_.push_back(std::move(line));
  }
  raise_event();
  return true;
}

bool ControlService::serve(ControlLine& line) {
  // Asked first: what the owner has sent before is in the outbox then.
  const bool has_been_detached = is_detached(line);
  send_outbox(line);
  if (line.socket_.is_open()) receive(line);
  if (line.ledger_ != nullptr) line.ledger_->tick(clock_.now());
  if (line.socket_.is_open() && line.socket_.has_unsent()) {
    if (Status status = line.socket_.flush(); !status.is_ok()) end(line, std::move(status));
  }
  if (!has_been_detached) return true;
  // What was sent last, such as that this side leaves, must arrive. A socket that is closed with
  // unread bytes would take it back.
  const TimePoint now = clock_.now();
  if (line.close_at_ == TimePoint::max()) line.close_at_ = now + kHandshakeTime;
  if (line.socket_.is_open() && !line.socket_.has_unsent()) line.socket_.finish();
  return line.socket_.is_open() && now < line.close_at_;
}

void ControlService::receive(ControlLine& line) {
  // First, since the messages that the process has sent before its end are to be read.
  pollfd watched{line.watch_.pidfd.get(), POLLIN, 0};
  const bool has_ended = watched.fd >= 0 && poll(&watched, 1, 0) > 0;
  const Status received = line.socket_.receive();
  for (;;) {
    auto message = line.socket_.next();
    if (!message) return end(line, message.status());
    if (!message->has_value()) break;
    if (line.ledger_ == nullptr) {
      give(line, std::move(**message));
    } else if (Status status = line.ledger_->receive(Rank(kDialer), **message, clock_.now());
               !status.is_ok()) {
      return end(line, std::move(status));
    }
  }
  if (has_ended)
    return end(line, Status(Code::kClosed, fmt::format("process {} has ended", line.peer_.pid)));
  if (!received.is_ok()) end(line, received);
}

void ControlService::send_outbox(ControlLine& line) {
  std::vector<Message> messages;
  {
    const std::lock_guard lock(line.outbox_mutex_);
    messages.swap(line.outbox_);
  }
  for (const Message& message : messages) {
    if (line.ledger_ == nullptr) {
      send_to_peer(line, message);
    } else if (Status status = line.ledger_->receive(Rank(kListener), message, clock_.now());
               !status.is_ok()) {
      end(line, std::move(status));
    }
  }
}

void ControlService::send_to_peer(ControlLine& line, const Message& message) {
  if (!line.socket_.is_open()) return;
  if (Status status = line.socket_.send(message); !status.is_ok()) end(line, std::move(status));
}

void ControlService::give(ControlLine& line, Message message) {
  const std::lock_guard lock(mutex_);
  if (line.is_detached_) return;
  if (line.client_ == nullptr) {
    line.undelivered_.push_back(std::move(message));
  } else {
    line.client_->take(std::move(message));
  }
  raise_event();
}

void ControlService::end(ControlLine& line, Status why) {
  if (!line.socket_.is_open()) return;
  line.socket_.close();
  line.watch_.pidfd.reset();
  const std::lock_guard lock(mutex_);
  if (!line.lost_) line.lost_ = std::move(why);
  if (line.client_ != nullptr) line.client_->lose(*line.lost_);
  raise_event();
}

void ControlService::finish() {
  take_dialed();
  const TimePoint deadline = clock_.now() + bootstrap::kAnswerSlack / 4;
  for (const auto& line : lines_) send_outbox(*line);
  for (const auto& line : lines_) {
    while (line->socket_.is_open() && line->socket_.has_unsent() &&
           bootstrap::wait_for(line->socket_.fd(), POLLOUT, deadline)) {
      if (!line->socket_.flush().is_ok()) break;
    }
    // Reads what has arrived, or else the end would be a RST.
    if (line->socket_.is_open()) receive(*line);
    line->socket_.finish();
  }
}

}  // namespace dunlin::transport::endpoint
