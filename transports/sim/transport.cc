#include "transports/sim/transport.h"

#include <fmt/format.h>

#include "transports/sim/region.h"

namespace dunlin::transport::sim {

Result<std::unique_ptr<RemoteRegion>> SimLink::import_region(std::span<const std::byte> descriptor,
                                                             std::size_t size) {
  return SimRemoteRegion::import(endpoint_.network(), *this, descriptor, size);
}

Status SimTransport::reach(Rank peer, std::span<const std::byte>) {
  const int ranks = endpoint_.network().options().ranks;
  if (peer.value() < ranks) return Status::ok();
  return Status(Code::kUnavailable, fmt::format("the simulated network has {} ranks", ranks))
      .with_peer(peer);
}

Result<std::unique_ptr<Link>> SimTransport::connect(Rank peer, std::span<const std::byte>) {
  return std::unique_ptr<Link>(std::make_unique<SimLink>(endpoint_, peer));
}

Result<std::unique_ptr<TransportRegion>> SimTransport::register_memory(
    const std::shared_ptr<MemoryRegion>& memory) {
  if (memory->kind() != MemoryKind::kHost) {
    return Status(Code::kUnavailable,
                  fmt::format("sim cannot access {} memory", to_string(memory->kind())));
  }
  return std::unique_ptr<TransportRegion>(std::make_unique<SimRegion>(endpoint_.network(), memory));
}

}  // namespace dunlin::transport::sim
