// Endpoint: one rank's end of a simulated network. Its transport or its node owns it. It holds the
// board for the rank's notifications, the rank's view of its peers, and the rank's lanes. Owner
// thread only.
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
  // Attaches itself to the network. All arguments must outlive it. `counters` may be null.
  Endpoint(Network& network, Rank rank, NotifyBoard& board, PeerTable& peers, Counters* counters);
  // Its lanes must have been destroyed.
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

  // Fires the completions of all lanes' operations that are done. Returns how many.
  std::size_t progress();

  // Only lanes and the network call these.
  void enter(SimLane& lane);
  void leave(SimLane& lane);
  void add_done(OperationId id);

 private:
  Network& network_;
  const Rank rank_;
  NotifyBoard& board_;
  PeerTable& peers_;
  Counters* const counters_;
  SimLane* lanes_ = nullptr;  // the first of a list
  OperationId first_done_ = kNoOperation;
  OperationId last_done_ = kNoOperation;
  std::uint64_t seen_peers_ = 0;  // the version of the peer table that was last checked
};

}  // namespace dunlin::transport::sim
