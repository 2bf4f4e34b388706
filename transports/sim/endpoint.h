// Endpoint: one rank's end of a simulated network, under its transport or its node: where
// notifications for it go, whom it takes for alive, and its lanes. Owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/counters.h"
#include "runtime/peers.h"
#include "transports/notification.h"
#include "transports/sim/operation.h"

namespace dunlin::transport::sim {

class Network;

class Endpoint {
 public:
  // Attaches itself to the network, which outlives it, as all that is handed in does. `counters`:
  // null where nobody counts.
  Endpoint(Network& network, Rank rank, NotifyBoard& board, PeerTable& peers, Counters* counters);
  // Its lanes are gone by then.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  Network& network() const { return network_; }
  Rank rank() const { return rank_; }
  NotifyBoard& board() const { return board_; }
  PeerTable& peers() const { return peers_; }
  PeerCounters* counters(Rank peer) const {
    return counters_ == nullptr ? nullptr : &counters_->peer(peer);
  }

  // Fires what is done, on all lanes; returns how many.
  std::size_t progress();

  // For lanes and the network.
  void enter(SimLane& lane);
  void leave(SimLane& lane);
  void add_done(OperationId id);

 private:
  Network& network_;
  const Rank rank_;
  NotifyBoard& board_;
  PeerTable& peers_;
  Counters* const counters_;
  SimLane* lanes_ = nullptr;  // first of a list
  OperationId first_done_ = kNoOperation;
  OperationId last_done_ = kNoOperation;
  std::uint64_t seen_peers_ = 0;  // version of the peer table that was looked at
};

}  // namespace dunlin::transport::sim
