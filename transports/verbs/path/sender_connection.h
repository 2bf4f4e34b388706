// SenderConnection: the connection of a lane's sending end: how it is made, given up while it is
// idle, and reestablished when it was lost while the peer lives.
//
// It opens a session (connect/session.h), creates the queue pair, and asks the peer for a
// connection. When a connection is lost, it tries again after kReconnectPause, each attempt with
// twice the timeout of the one before, until DUNLIN_DEADLINE has passed. A first connection that
// fails is not tried again. Whether the peer still lives, and whether the connections complete
// anything, decides if trying again makes sense; otherwise the connection is over, for good. The
// owner is told, and decides what that means for its operations.
//
// A connection that was at rest has no deadline. Nothing was lost, and the peer may have something
// else to do. So it is tried again for as long as the bootstrap calls the peer present.
//
// A peer that refuses a connection for now is asked again, even for a first connection. If this end
// lacks what a queue pair takes, it tries again until DUNLIN_DEADLINE has passed, and then the
// connection is over with kResourceExhausted.
//
// Each connection takes a place of the process's share (connect/connection_share.h) while it has a
// queue pair. Without a place it rests: it has neither a queue pair nor a session, and needs none
// until the owner wants it. Owner thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/clock.h"
#include "runtime/rank.h"
#include "transports/verbs/connect/endpoint.h"
#include "transports/verbs/connect/session.h"
#include "transports/verbs/connect/wire.h"
#include "transports/verbs/constants.h"

namespace dunlin::transport::verbs {

class Engine;
class Port;

class SenderConnection {
 public:
  // Gets the completions of the queue pair, and hands its events back to on_event().
  class Owner : public Endpoint {
   public:
    // A connection is about to begin: settles what the one before it left. An error means that the
    // answer makes no sense, and that nothing was done.
    virtual Status settle(const Answer& answer) = 0;
    // The connection is up: work requests can be posted.
    virtual void go_on() = 0;
    // The connection is lost.
    virtual void pause() = 0;
    // The connection is over. Its queue pair no longer uses any memory.
    virtual void end(const Status& why) = 0;
    // Takes a place of the process's share, if the connection is to be made before it is needed.
    // Returns whether it has.
    virtual bool take_place() = 0;
    // Waits for a place. start() is called once there is one.
    virtual void wait_for_place() = 0;
    // Gives up its place, or stops waiting for one.
    virtual void leave_place() = 0;
    // The number of operations that have completed so far, over all connections.
    virtual std::uint64_t operations_completed() const = 0;
  };

  // `rail`: 0 for a lane itself, otherwise the number of the rail that carries stripes for it. All
  // references must outlive the connection.
  SenderConnection(Engine& engine, Port& port, Owner& owner, Rank peer, LaneKind kind,
                   std::uint8_t rail);

  // Blocks until a route was found; kUnavailable if there is none. Then goes on to connect if the
  // owner takes a place, or rests.
  Status connect(const Address& address);
  // Connects once there is a place. It must be at rest.
  void want();
  // There is a place.
  void start();
  // Gives the connection up. The peer takes all that has arrived, and forgets the numbers of cells.
  void rest();

  bool waits_for_place() const { return state_ == State::kWaiting; }
  bool is_at_rest() const { return state_ == State::kResting; }
  bool is_connected() const { return state_ == State::kUsable; }
  bool is_over() const { return state_ == State::kOver; }
  // Why the connection is over; ok while it is not.
  const Status& failure() const { return failure_; }
  const Address& address() const { return address_; }
  // The two use the present session.
  ibv_qp* queue_pair() const { return session_->queue_pair(); }
  Status post_receive() { return session_->post_receive(); }
  // The most bytes that the queue pair sends inline.
  std::uint32_t inline_limit() const { return inline_limit_; }

  void on_event(const Event& event);
  // The connection is of no use any more. Tries again later, if that makes sense. Of an attempt to
  // connect, kBusy means that the peer refuses for now, and kResourceExhausted that this end has no
  // room for a queue pair.
  void lose(Status why);
  // Ends the connection for good.
  void fail(Status why);
  // Connects again when it is time. Call it now and then.
  void step(TimePoint now);

 private:
  enum class State : std::uint8_t { kResting, kWaiting, kConnecting, kUsable, kLost, kOver };

  std::string name() const;  // "data", "rail 2"
  ibv_qp_cap room() const;   // what the queue pair is to hold
  void set_state(State state);
  Status begin();
  Status make_queue_pair();
  Status request();
  Status establish(const Event& event);
  // Whether it makes sense to try again after an attempt has failed with this code. `is_first`: it
  // was the first attempt of all.
  bool can_try_again(Code code, bool is_first, TimePoint now) const;
  void drop();
  void leave_place();

  Engine& engine_;
  Port& port_;
  Owner& owner_;
  const Rank peer_;
  const LaneKind kind_;
  const std::uint8_t rail_;
  Address address_;
  std::unique_ptr<Session> session_;
  std::uint32_t inline_limit_ = 0;
  State state_ = State::kResting;
  bool has_route_ = false;
  bool has_place_ = false;
  bool was_connected_ = false;
  Status failure_;
  // These are valid while the connection is lost, or is being made:
  bool is_patient_ = false;               // it was at rest: there is no deadline
  std::optional<TimePoint> lacks_since_;  // when this end began to lack room for a queue pair
  Status loss_;                           // why it was lost; ok if it was not
  TimePoint lost_at_{};                   // or when it was begun
  int fruitless_ = 0;                     // connections in a row that completed nothing
  std::uint64_t completed_before_ = 0;
  TimePoint next_step_{};
  Duration attempt_timeout_ = kFirstAttempt;
};

}  // namespace dunlin::transport::verbs
