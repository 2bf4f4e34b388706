#include "transports/sim/node.h"

#include <fmt/format.h>

#include <algorithm>

#include "transports/sim/region.h"

namespace dunlin::transport::sim {

Result<std::unique_ptr<Node>> Node::create(Network& network, Rank rank, std::size_t cells) {
  DUNLIN_TRY(network.check_free(rank));
  return std::unique_ptr<Node>(new Node(network, rank, NotifyBoard::create_private(cells)));
}

Node::~Node() {
  set_actor(nullptr);
}

Result<Link*> Node::link(Rank peer) {
  if (peer.value() < 0 || peer.value() >= size()) {
    return Status(Code::kOutOfRange,
                  fmt::format("there is no rank {} among {}", peer.value(), size()));
  }
  const auto place =
      std::lower_bound(links_.begin(), links_.end(), peer,
                       [](const auto& link, Rank wanted) { return link->peer() < wanted; });
  if (place != links_.end() && (*place)->peer() == peer) return place->get();
  return links_.insert(place, std::make_unique<SimLink>(endpoint_, peer))->get();
}

Result<std::unique_ptr<LocalRegion>> Node::allocate_phantom(std::size_t size) {
  DUNLIN_ASSIGN(auto memory, network().phantom().allocate(size));
  return register_memory(std::move(memory));
}

std::unique_ptr<LocalRegion> Node::register_memory(std::shared_ptr<MemoryRegion> memory) {
  std::vector<std::unique_ptr<TransportRegion>> transports;
  transports.push_back(std::make_unique<SimRegion>(network(), memory));
  return std::make_unique<LocalRegion>(std::move(memory), std::move(transports));
}

Result<std::unique_ptr<RemoteRegion>> Node::import_region(Rank peer, const LocalRegion& theirs) {
  DUNLIN_ASSIGN(Link* const to, link(peer));
  return to->import_region(theirs.at(0)->descriptor(), theirs.size());
}

}  // namespace dunlin::transport::sim
