// Dialer: makes the connection of a lane to its peer, without blocking. It tries the peer's
// addresses one after another, again and again, and carries out the client's part of the handshake,
// until it succeeds or gives up. Owner thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/peers.h"
#include "transports/tcp/address.h"
#include "transports/tcp/handshake.h"
#include "transports/tcp/poller.h"

namespace dunlin::transport::tcp {

class Dialer final : private SocketUser {
 public:
  // The object that wants the connection. What start() begins ends with one of these calls, or with
  // stop().
  class User {
   public:
    virtual void on_connected(Fd socket, const SessionKeys& keys) = 0;
    virtual void on_unreachable(const Status& why) = 0;

   protected:
    ~User() = default;
  };
  struct Target {
    Purpose purpose;
    std::vector<Endpoint> endpoints;  // to be tried, best first; not empty
  };

  // The references must outlive the dialer.
  Dialer(const Credentials& mine, Target target, Poller& poller, const Clock& clock,
         const PeerTable& peers, User& user)
      : mine_(mine),
        target_(std::move(target)),
        poller_(poller),
        clock_(clock),
        peers_(peers),
        user_(user) {}

  // Begins to make the lane's connection `attempt` after `delay`, and tries for at most `timeout`.
  // If `counts_silence_only`, some time does not count: that in which a kernel accepts connections
  // at one of the addresses, and that in which the peer is known to be stopped. The peer lives
  // then, but is busy elsewhere.
  void start(std::uint64_t attempt, Duration timeout, bool counts_silence_only, Duration delay);
  void stop();
  bool is_active() const { return state_ != State::kIdle; }
  // Begins the next attempt when it is due, and ends one that takes too long.
  void step(TimePoint now);

 private:
  enum class State : std::uint8_t { kIdle, kWaiting, kConnecting, kGreeting };

  void on_ready() override;
  void attempt(TimePoint now);
  Status greet();
  Status finish();
  void fail(const Status& why);

  const Credentials mine_;
  Target target_;
  Poller& poller_;
  const Clock& clock_;
  const PeerTable& peers_;
  User& user_;
  State state_ = State::kIdle;
  std::size_t next_ = 0;  // index of the endpoint that is tried, or tried next
  Duration timeout_{};
  bool counts_silence_only_ = false;
  bool has_tried_ = false;  // since start(); before that, it does not give up
  TimePoint give_up_at_;
  TimePoint due_at_;  // kWaiting: the next attempt; otherwise the end of this one
  Duration delay_{};
  std::string last_failure_;
  Fd socket_;
  Watch watch_;  // ends before the socket
  std::optional<ClientHandshake> handshake_;
  ServerHello answer_{};
  std::size_t received_ = 0;
};

}  // namespace dunlin::transport::tcp
