// Node: a rank on a simulated network without a Fabric, light enough for 65,536 of them in one
// process: a board of as many cells as it needs, links that are made on first use (a few hundred
// bytes each), and memory that may be phantom. What runs on one uses lanes, the board and slices
// only, and runs the same on a Fabric's.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "transports/sim/endpoint.h"
#include "transports/sim/network.h"
#include "transports/sim/transport.h"

namespace dunlin::transport::sim {

class Node {
 public:
  // `cells`: of its board. The network outlives the node, and has no other of this rank.
  static Result<std::unique_ptr<Node>> create(Network& network, Rank rank, std::size_t cells);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Rank rank() const { return endpoint_.rank(); }
  int size() const { return network().options().ranks; }
  Network& network() const { return endpoint_.network(); }
  NotifyBoard& board() { return *board_; }
  // All nodes of a network share it.
  PeerTable& peers() { return endpoint_.peers(); }
  const Clock& clock() const { return network().clock(); }

  // Made on first use; lives as long as the node. kOutOfRange for a rank beyond the network's.
  Result<Link*> link(Rank peer);

  // Memory without bytes: lanes take as long with it, and move nothing.
  Result<std::unique_ptr<LocalRegion>> allocate_phantom(std::size_t size);
  // Of any kind.
  std::unique_ptr<LocalRegion> register_memory(std::shared_ptr<MemoryRegion> memory);
  // The region of a peer, of the same network.
  Result<std::unique_ptr<RemoteRegion>> import_region(Rank peer, const LocalRegion& theirs);

  // See Network.
  void set_actor(Actor* actor) { network().set_actor(rank(), actor); }
  void wake_at(TimePoint when) { network().wake_at(rank(), when); }
  TimePoint compute(Duration work) { return network().compute(rank(), work); }
  // Fires what is done; an actor has no need to.
  std::size_t progress() { return endpoint_.progress(); }

 private:
  Node(Network& network, Rank rank, std::unique_ptr<NotifyBoard> board)
      : board_(std::move(board)), endpoint_(network, rank, *board_, network.peers(), nullptr) {}

  std::unique_ptr<NotifyBoard> board_;
  Endpoint endpoint_;
  std::vector<std::unique_ptr<SimLink>> links_;  // ascending by peer
};

}  // namespace dunlin::transport::sim
