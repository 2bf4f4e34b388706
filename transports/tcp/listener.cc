#include "transports/tcp/listener.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "runtime/log.h"
#include "transports/tcp/socket.h"

namespace dunlin::transport::tcp {

// A listening socket.
class Listener::Port final : public SocketUser {
 public:
  Port(Listener& listener, Fd socket) : listener_(listener), socket_(std::move(socket)) {}
  Status watch() { return watch_.start(listener_.poller_, socket_.get(), *this); }
  void on_ready() override { listener_.accept_all(socket_.get()); }

 private:
  Listener& listener_;
  Fd socket_;
  Watch watch_;
};

// A connection that has not proved itself. It stays in its list until settle().
class Listener::Guest final : public SocketUser {
 public:
  Guest(Listener& listener, Fd socket, const Endpoint& from)
      : listener_(listener),
        from_(from),
        deadline_(listener.clock_.now() + kGuestTimeout),
        socket_(std::move(socket)),
        handshake_(listener.options_.credentials, listener.options_.self, listener.options_.token) {
  }

  Status watch() { return watch_.start(listener_.poller_, socket_.get(), *this); }
  bool is_over() const { return !socket_.is_open(); }
  bool has_greeted() const { return has_greeted_; }
  TimePoint deadline() const { return deadline_; }
  // When it may be ended in favor of another one.
  TimePoint may_be_ended_at() const { return deadline_ - kGuestTimeout + kGuestGrace; }

  void on_ready() override {
    if (Status status = step(); !status.is_busy()) end(std::move(status));
  }
  // Closes the connection unless `status` is ok, which means that it was handed on.
  void end(const Status& status) {
    watch_.stop();
    socket_.reset();
    // A guest that leaves before it has sent anything is not logged: it may be a peer that took
    // another address. Nor is a member that leaves: it may have got a connection from this process.
    const bool has_left = status.code() == Code::kClosed || status.code() == Code::kIoError;
    if (status.is_error() && !(has_left && (has_greeted_ || received_ == 0)))
      listener_.refuse(from_, status);
  }

 private:
  // kBusy until the outcome is known.
  Status step() {
    if (!has_greeted_) {
      DUNLIN_TRY(receive_whole(socket_.get(), &hello_, sizeof hello_, received_));
      std::uint64_t mark = 0;
      std::memcpy(&mark, hello_.proof.data(), sizeof mark);
      if (listener_.answered_.contains(mark))
        return {Code::kPermissionDenied, "it repeats a greeting"};
      DUNLIN_ASSIGN(const ServerHello answer,
                    handshake_.on_hello(hello_, listener_.options_.job_size));
      if (listener_.answered_.size() == kMostRemembered) listener_.answered_.clear();
      listener_.answered_.insert(mark);
      has_greeted_ = true;
      received_ = 0;
      DUNLIN_TRY(send_whole(socket_.get(), &answer, sizeof answer));
    }
    DUNLIN_TRY(receive_whole(socket_.get(), &proof_, sizeof proof_, received_));
    DUNLIN_TRY(handshake_.on_proof(proof_));
    watch_.stop();
    return listener_.on_admitted_({std::move(socket_), handshake_.purpose(), handshake_.keys()});
  }

  Listener& listener_;
  const Endpoint from_;
  const TimePoint deadline_;
  Fd socket_;
  Watch watch_;  // ends before the socket
  ServerHandshake handshake_;
  bool has_greeted_ = false;
  ClientHello hello_{};
  ClientProof proof_{};
  std::size_t received_ = 0;  // bytes of the message that is awaited
};

Listener::Listener(const Options& options, Poller& poller, const Clock& clock,
                   OnAdmitted on_admitted)
    : options_(options), poller_(poller), clock_(clock), on_admitted_(std::move(on_admitted)) {}

Listener::~Listener() = default;

Status Listener::listen_at(const std::vector<Endpoint>& places) {
  Status last(Code::kUnavailable, "this host has no address at which the peer could reach it");
  bool listens = false;
  for (const Endpoint& place : places) {
    // One may fail: for example, IPv6 may be switched off for an interface with such an address.
    Status status = open_port(place);
    listens = listens || status.is_ok();
    if (!status.is_ok()) last = std::move(status);
  }
  return listens ? Status::ok() : last;
}

Status Listener::open_port(Endpoint place) {
  const auto is_there = [&](const Endpoint& it) { return it.is_at_same_address(place); };
  if (std::any_of(endpoints_.begin(), endpoints_.end(), is_there)) return Status::ok();
  place.set_port(0);
  DUNLIN_ASSIGN(Fd socket, tcp::listen_at(place));
  auto port = std::make_unique<Port>(*this, std::move(socket));
  DUNLIN_TRY(port->watch());
  ports_.push_back(std::move(port));
  endpoints_.push_back(place);
  DUNLIN_DEBUG("tcp listens at {}", place.to_string());
  return Status::ok();
}

void Listener::accept_all(int socket) {
  for (int count = 0; count < kMostAccepted; ++count) {
    const bool is_crowded = greeted_.size() >= kMostGreetedGuests;
    if (is_crowded && clock_.now() < greeted_.front().may_be_ended_at()) return;
    Endpoint from;
    auto accepted = accept_from(socket, from);
    if (!accepted) {
      refuse(from, accepted.status());
      drop_oldest();  // the process may be out of descriptors
      return;
    }
    if (!accepted->is_open()) return;
    if (is_crowded) {
      greeted_.front().end({Code::kResourceExhausted, "too many connections arrived at once"});
      greeted_.pop_front();
    }
    take_in(std::move(accepted).value(), from);
  }
}

void Listener::take_in(Fd socket, const Endpoint& from) {
  Guest& guest = silent_.emplace_back(*this, std::move(socket), from);
  if (Status status = guest.watch(); !status.is_ok()) {
    guest.end(status);
  } else {
    guest.on_ready();  // a member's greeting is there already
  }
  if (guest.is_over()) {
    silent_.pop_back();
  } else if (guest.has_greeted()) {
    greeted_.splice(greeted_.end(), silent_, std::prev(silent_.end()));
  } else if (silent_.size() > kMostSilentGuests) {
    silent_.front().end({Code::kResourceExhausted, "too many connections arrived at once"});
    silent_.pop_front();
  }
}

void Listener::drop_oldest() {
  std::list<Guest>& guests = silent_.empty() ? greeted_ : silent_;
  if (!guests.empty()) guests.pop_front();
}

void Listener::settle() {
  if (!has_guests() && refused_ == 0) return;
  const TimePoint now = clock_.now();
  for (std::list<Guest>* const guests : {&silent_, &greeted_}) {
    for (Guest& guest : *guests) {
      if (guest.is_over() || now < guest.deadline()) continue;
      // What it sent while this process made no progress counts.
      guest.on_ready();
      if (!guest.is_over())
        guest.end({Code::kDeadlineExceeded, "it did not prove that it belongs to the job in time"});
    }
    guests->remove_if([](const Guest& guest) { return guest.is_over(); });
  }
  for (auto at = silent_.begin(); at != silent_.end();) {
    const auto guest = at++;
    if (guest->has_greeted()) greeted_.splice(greeted_.end(), silent_, guest);
  }
  log_refusals(now);
}

void Listener::refuse(const Endpoint& from, const Status& why) {
  ++refused_;
  last_refusal_ = fmt::format("{}: {}", from.to_string(), why.message());
}

void Listener::log_refusals(TimePoint now) {
  if (refused_ == 0 || (logged_at_ != TimePoint{} && now - logged_at_ < kRefusalLogInterval))
    return;
  logged_at_ = now;
  DUNLIN_WARN("tcp refused {} connection{}, the last one from {}", refused_,
              refused_ == 1 ? "" : "s", last_refusal_);
  refused_ = 0;
}

}  // namespace dunlin::transport::tcp
