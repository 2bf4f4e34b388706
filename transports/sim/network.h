// Network: a simulated fabric in virtual time, for the protocols that run on real ones.
//
// All ranks live in one thread of one process. They post on lanes; step() moves the clock to the
// next event and lets it happen. A rank is a Fabric over the transport that factory() makes (real
// protocols, real memory), or a Node (light, for tens of thousands). It can be stepped by hand, as
// a test does that progresses its fabrics between steps, or be an Actor, which is called when there
// is something for it. The same options, seed and calls give the same run, event by event.
//
// What a message costs is said in wires.h and options.h: it leaves when its sender's egress is
// free, takes latency + bytes / bandwidth, and lands when the receiver's ingress has taken in its
// bytes. A put is complete, its memory free, when it has landed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "runtime/clock.h"
#include "runtime/peers.h"
#include "transports/sim/event_queue.h"
#include "transports/sim/memory.h"
#include "transports/sim/operation.h"
#include "transports/sim/options.h"
#include "transports/sim/random.h"
#include "transports/sim/wires.h"
#include "transports/transport.h"

namespace dunlin::transport::sim {

class Endpoint;

// What a rank does when it is its turn: called when a notification arrived for it, an operation of
// its own completed (its completions have fired by then), a lane that refused it has room again, a
// timer of its own has come, or another rank was lost; never from inside a call of its own. It may
// be called without anything new.
class Actor {
 public:
  virtual void advance() = 0;

 protected:
  ~Actor() = default;
};

struct Statistics {
  std::uint64_t events = 0;
  std::uint64_t messages = 0;  // posted
  std::uint64_t bytes = 0;     // of them, on the wire
  std::uint64_t refusals = 0;  // posts that got kBusy
  Duration real{};             // time that run() took

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

  // The transport "sim" of one rank after the other; the network outlives them.
  TransportFactory factory();

  // Lets the next event happen, and all actors act whom it concerns; false when there is none.
  bool step();
  // Steps until nothing is left to happen, or so many events have; returns how many did.
  std::uint64_t run(std::uint64_t most = std::numeric_limits<std::uint64_t>::max());
  std::size_t events_in_flight() const { return events_.size(); }

  // Who acts for a rank; null: nobody. It has its first turn at a time of wake_at().
  void set_actor(Rank rank, Actor* actor);
  void wake_at(Rank rank, TimePoint when);
  // Keeps the rank busy for that long, times its straggler factor: what comes meanwhile waits, and
  // its actor has its next turn at the end, which is returned.
  TimePoint compute(Rank rank, Duration work);

  // The rank ends at that time: it does nothing any more, what it has on the wire is lost, and
  // after options().loss_notice all others see in their PeerTables that it is dead.
  void lose_at(Rank rank, TimePoint when);
  bool is_lost(Rank rank) const { return ranks_[rank.index()].is_lost; }

  const Statistics& statistics() const { return statistics_; }
  // Of all events so far and their times: equal for equal runs.
  std::uint64_t trace_hash() const { return trace_hash_; }

  // For nodes, lanes, transports:
  PeerTable& peers() { return peers_; }  // of nodes, which all know the same
  RegionTable& regions() { return regions_; }
  PhantomSpace& phantom() { return phantom_; }
  OperationPool& operations() { return operations_; }
  void attach(Endpoint& endpoint);
  void detach(Endpoint& endpoint);
  Endpoint* endpoint(Rank rank) const { return ranks_[rank.index()].endpoint; }
  // ok when the rank exists and has no endpoint yet.
  Status check_free(Rank rank) const;
  // At random, where the options ask for it.
  bool is_refused(Rank rank);
  void count_refusal() { ++statistics_.refusals; }
  // Sends an operation, which is in its lane's list, on its way.
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

  // Of operations, in traffic.cc.
  void handle_operation(const Event& event);
  void launch_hostile(Operation& operation, OperationId id);
  void send_head(Operation& operation, OperationId id, TimePoint left);
  void take_in(OperationId id);
  void land(OperationId id);
  void land_piece(OperationId id, std::uint16_t piece);
  void copy(Operation& operation, std::size_t begin, std::size_t end);
  void publish(Operation& operation);
  void finish(OperationId id);
  Duration draw_jitter();

  Options options_;
  ManualClock clock_;
  Random random_;
  Wires wires_;
  EventQueue events_;
  OperationPool operations_;
  PeerTable peers_;
  RegionTable regions_;
  PhantomSpace phantom_;
  std::vector<RankState> ranks_;
  std::vector<Rank> due_;  // whose turn it is
  Statistics statistics_;
  std::uint64_t trace_hash_ = 0;
};

}  // namespace dunlin::transport::sim
