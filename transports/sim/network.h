// Network: a simulated fabric in virtual time, for the protocols that run on real ones.
//
// All ranks live in one thread of one process and post operations on lanes. step() moves the clock
// to the next event and lets it happen. A rank is either a Fabric over the transport that factory()
// makes, or a Node, which is lighter and permits tens of thousands of ranks. A test may progress
// its fabrics between steps by hand. Otherwise a rank has an Actor, which is called when there is
// something for it. The same options, seed and calls give the same run, event by event.
//
// port_occupancy.h and options.h define what a message costs. It leaves when its sender's egress is
// free, takes latency + bytes / bandwidth, and lands when the receiver's ingress has taken in its
// bytes. A put completes, and its memory may be reused, when it has landed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "runtime/clock.h"
#include "runtime/peers.h"
#include "transports/sim/event_queue.h"
#include "transports/sim/memory.h"
#include "transports/sim/operation.h"
#include "transports/sim/options.h"
#include "transports/sim/port_occupancy.h"
#include "transports/sim/random.h"
#include "transports/transport.h"

namespace dunlin::transport::sim {

class Endpoint;

// The code of a rank. advance() is called when a notification arrived for the rank, when one of its
// operations completed (the completion has fired by then), when a lane that returned kBusy has room
// again, when a timer of wake_at() is due, or when another rank died. It may also be called for no
// reason. It is never called during a call that the actor makes itself.
class Actor {
 public:
  virtual void advance() = 0;

 protected:
  ~Actor() = default;
};

struct Statistics {
  std::uint64_t events = 0;
  std::uint64_t messages = 0;  // posted
  std::uint64_t bytes = 0;     // on the wire, of these messages
  std::uint64_t refusals = 0;  // posts that returned kBusy
  Duration real{};             // real time that run() took

  double events_per_second() const {
    return real.count() == 0 ? 0 : static_cast<double>(events) / to_seconds(real);
  }
};

class Network {
 public:
  static Result<std::unique_ptr<Network>> create(Options options);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  const Options& options() const { return options_; }
  const ManualClock& clock() const { return clock_; }
  TimePoint now() const { return clock_.now(); }

  // A factory of the transport "sim", for all ranks. The network must outlive the transports.
  TransportFactory factory();

  // Lets the next event happen, and calls the actors that it concerns. Returns false if there is no
  // event.
  bool step();
  // Steps until there is no event, or `most` events have happened. Returns how many have.
  std::uint64_t run(std::uint64_t most = std::numeric_limits<std::uint64_t>::max());
  std::size_t events_in_flight() const { return events_.size(); }

  // Sets a rank's actor, or removes it if null. The first call of advance() needs a wake_at().
  void set_actor(Rank rank, Actor* actor);
  void wake_at(Rank rank, TimePoint when);
  // Keeps the rank busy for `work` times its straggler factor. Events for its actor wait until
  // then. Returns the time of the end, when the actor is called.
  TimePoint compute(Rank rank, Duration work);

  // Lets the rank die at that time. It does nothing more, its messages in flight are lost, and
  // after options().loss_notice the PeerTables of all others say that it is dead.
  void lose_at(Rank rank, TimePoint when);
  bool is_lost(Rank rank) const { return ranks_[rank.index()].is_lost; }

  // From now on, nothing that `from` has posted or posts lands at `at`, as if `at` had ended the
  // connection. `from` gets no answer.
  void revoke(Rank from, Rank at) { revoked_.insert({from, at}); }
  bool is_revoked(Rank from, Rank at) const {
    return !revoked_.empty() && revoked_.contains({from, at});
  }

  const Statistics& statistics() const { return statistics_; }
  // A hash of all events so far and their times. Equal runs have equal hashes.
  std::uint64_t trace_hash() const { return trace_hash_; }

  // The rest is for nodes, lanes and transports.
  PeerTable& peers() { return peers_; }  // shared by all nodes
  RegionTable& regions() { return regions_; }
  PhantomSpace& phantom() { return phantom_; }
  OperationPool& operations() { return operations_; }
  void attach(Endpoint& endpoint);
  void detach(Endpoint& endpoint);
  Endpoint* endpoint(Rank rank) const { return ranks_[rank.index()].endpoint; }
  // ok when the rank exists and has no endpoint yet.
  Status check_free(Rank rank) const;
  // Whether a post is to return kBusy: at random, on a hostile network.
  bool is_refused(Rank rank);
  void count_refusal() { ++statistics_.refusals; }
  // Starts an operation that is in its lane's list.
  void launch(OperationId id);
  // Finishes the operation at that time.
  void answer(OperationId id, TimePoint when);

 private:
  struct RankState {
    Endpoint* endpoint = nullptr;
    Actor* actor = nullptr;
    TimePoint busy_until{};
    double factor = 1;
    bool is_due = false;  // in due_
    bool is_lost = false;
  };

  explicit Network(Options options);
  void handle(const Event& event);
  void take_turns();
  void nudge(Rank rank);
  void lose(Rank rank);
  void tell_of_loss(Rank rank);

  // The functions for operations are in traffic.cc.
  void handle_operation(const Event& event);
  void launch_hostile(Operation& operation, OperationId id);
  void send_head(Operation& operation, OperationId id, TimePoint left);
  void take_in(OperationId id);
  // Whether the target of the operation takes nothing of it.
  bool is_unheard(const Operation& operation) const;
  void land(OperationId id);
  void land_piece(OperationId id, std::uint16_t piece);
  void copy(Operation& operation, std::size_t begin, std::size_t end);
  void publish(Operation& operation);
  void finish(OperationId id);
  Duration draw_jitter();

  Options options_;
  ManualClock clock_;
  Random random_;
  PortOccupancy ports_;
  EventQueue events_;
  OperationPool operations_;
  PeerTable peers_;
  RegionTable regions_;
  PhantomSpace phantom_;
  std::vector<RankState> ranks_;
  std::set<std::pair<Rank, Rank>> revoked_;  // from, at
  std::vector<Rank> due_;                    // ranks whose actors are to be called
  Statistics statistics_;
  std::uint64_t trace_hash_ = 0;
};

}  // namespace dunlin::transport::sim
