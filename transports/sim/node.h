// Node: a rank on a simulated network that needs no Fabric. It is so light that one process can
// hold 65,536 of them.
//
// A node has a board with as many cells as it needs, links that are made on first use (a few
// hundred bytes each), and memory that may be phantom. Code that uses only lanes, the board and
// slices runs on a node as it does on a Fabric.
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
  // `cells`: the size of its board. The network must outlive the node. kAlreadyExists if the rank
  // has an endpoint already.
  static Result<std::unique_ptr<Node>> create(Network& network, Rank rank, std::size_t cells);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Rank rank() const { return endpoint_.rank(); }
  int size() const { return network().options().ranks; }
  Network& network() const { return endpoint_.network(); }
  NotifyBoard& board() { return *board_; }
  // All nodes of a network share one table.
  PeerTable& peers() { return endpoint_.peers(); }
  const Clock& clock() const { return network().clock(); }

  // Returns the link to a peer, which is made on first use and lives as long as the node.
  // kOutOfRange if the network does not have the rank.
  Result<Link*> link(Rank peer);

  // Allocates phantom memory, which has no bytes. Operations on it take as long as on other memory,
  // but move nothing.
  Result<std::unique_ptr<LocalRegion>> allocate_phantom(std::size_t size);
  // Registers memory of any kind.
  std::unique_ptr<LocalRegion> register_memory(std::shared_ptr<MemoryRegion> memory);
  // Makes the region of a peer on the same network usable here.
  Result<std::unique_ptr<RemoteRegion>> import_region(Rank peer, const LocalRegion& theirs);

  // See Network.
  void set_actor(Actor* actor) { network().set_actor(rank(), actor); }
  void wake_at(TimePoint when) { network().wake_at(rank(), when); }
  TimePoint compute(Duration work) { return network().compute(rank(), work); }
  // Fires completions. An actor need not call it.
  std::size_t progress() { return endpoint_.progress(); }

 private:
  Node(Network& network, Rank rank, std::unique_ptr<NotifyBoard> board)
      : board_(std::move(board)), endpoint_(network, rank, *board_, network.peers(), nullptr) {}

  std::unique_ptr<NotifyBoard> board_;
  Endpoint endpoint_;
  std::vector<std::unique_ptr<SimLink>> links_;  // ascending by peer
};

}  // namespace dunlin::transport::sim
