#include "transports/tcp/listener.h"

#include <fmt/format.h>

#include <algorithm>
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

// A connection that has not proved itself. It stays in the list until settle().
class Listener::Guest final : public SocketUser {
 public:
  Guest(Listener& listener, Fd socket, const Endpoint& from)
      : listener_(listener),
        from_(from),
        deadline_(listener.clock_.now() + kHandshakeTimeout),
        socket_(std::move(socket)),
        handshake_(listener.options_.credentials, listener.options_.self, listener.options_.token) {
  }

  Status watch() { return watch_.start(listener_.poller_, socket_.get(), *this); }
  bool is_over() const { return !socket_.is_open(); }
  TimePoint deadline() const { return deadline_; }
  // When it may be ended in favor of another one.
  TimePoint may_be_ended_at() const { return deadline_ - kHandshakeTimeout + kGuestGrace; }

  void on_ready() override {
    if (Status status = step(); !status.is_busy()) end(std::move(status));
  }
  // Closes the connection unless `status` is ok, which means that it was handed on.
  void end(const Status& status) {
    watch_.stop();
    socket_.reset();
    // Who goes away without a word is no stranger, for example a peer that took another address.
    if (status.is_error() && (status.code() != Code::kClosed || received_ != 0))
      listener_.refuse(from_, status);
  }

 private:
  // kBusy until the outcome is known.
  Status step() {
    if (!has_greeted_) {
      DUNLIN_TRY(receive_whole(socket_.get(), &hello_, sizeof hello_, received_));
      DUNLIN_ASSIGN(const ServerHello answer,
                    handshake_.on_hello(hello_, listener_.options_.job_size));
      DUNLIN_TRY(send_whole(socket_.get(), &answer, sizeof answer));
      has_greeted_ = true;
      received_ = 0;
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

Result<std::unique_ptr<Listener>> Listener::create(const Options& options, Poller& poller,
                                                   const Clock& clock, OnAdmitted on_admitted) {
  std::unique_ptr<Listener> listener(new Listener(options, poller, clock, std::move(on_admitted)));
  DUNLIN_TRY(listener->listen());
  return listener;
}

Status Listener::listen() {
  DUNLIN_ASSIGN(endpoints_, interface_addresses(options_.interface));
  for (Endpoint& endpoint : endpoints_) endpoint.set_port(0);
  // One socket per family is enough for all interfaces, and one per address for a single interface.
  std::vector<Endpoint> places;
  for (const Endpoint& endpoint : endpoints_) {
    const Endpoint place = options_.interface.empty() ? endpoint.any() : endpoint;
    if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  }
  Status last(Code::kUnavailable, "no address");
  for (const Endpoint& place : places) {
    Endpoint bound = place;
    auto socket = tcp::listen_at(bound);
    if (!socket) {  // for example, the interface has an address whose family is switched off
      last = std::move(socket).status();
      continue;
    }
    ports_.push_back(std::make_unique<Port>(*this, std::move(socket).value()));
    DUNLIN_TRY(ports_.back()->watch());
    for (Endpoint& endpoint : endpoints_) {
      const Endpoint its_place = options_.interface.empty() ? endpoint.any() : endpoint;
      if (endpoint.port() == 0 && its_place == place) endpoint.set_port(bound.port());
    }
  }
  std::erase_if(endpoints_, [](const Endpoint& endpoint) { return endpoint.port() == 0; });
  return endpoints_.empty() ? last : Status::ok();
}

void Listener::accept_all(int socket) {
  for (std::size_t count = 0; count < kMostGuests; ++count) {
    const bool is_full = guests_.size() == kMostGuests;
    if (is_full && clock_.now() < guests_.front().may_be_ended_at()) return;
    Endpoint from;
    auto accepted = accept_from(socket, from);
    if (!accepted) {
      refuse(from, accepted.status());
      // The process may be out of descriptors: the oldest guest gives its own back.
      if (!guests_.empty()) guests_.pop_front();
      return;
    }
    if (!accepted->is_open()) return;
    if (is_full) {
      guests_.front().end({Code::kResourceExhausted, "too many connections arrived at once"});
      guests_.pop_front();
    }
    guests_.emplace_back(*this, std::move(accepted).value(), from);
    if (Status status = guests_.back().watch(); !status.is_ok()) guests_.back().end(status);
  }
}

void Listener::settle() {
  if (guests_.empty() && refused_ == 0) return;
  const TimePoint now = clock_.now();
  for (Guest& guest : guests_) {
    if (guest.is_over() || now < guest.deadline()) continue;
    // What it sent while this process made no progress counts.
    guest.on_ready();
    if (!guest.is_over())
      guest.end({Code::kDeadlineExceeded, "it did not prove that it belongs to the job in time"});
  }
  guests_.remove_if([](const Guest& guest) { return guest.is_over(); });
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
