#include "transports/sim/region.h"

namespace dunlin::transport::sim {

SimRegion::~SimRegion() {
  network_.regions().remove(id_);
}

Bytes SimRegion::descriptor() const {
  return ByteWriter().number(id_.number).number(id_.generation).take();
}

Result<std::unique_ptr<RemoteRegion>> SimRemoteRegion::import(Network& network, const Link& link,
                                                              std::span<const std::byte> descriptor,
                                                              std::size_t size) {
  ByteReader reader(descriptor);
  RegionId id;
  id.number = reader.number<std::uint32_t>();
  id.generation = reader.number<std::uint32_t>();
  if (!reader.at_end()) {
    return Status(Code::kCorrupted, "malformed sim region descriptor").with_peer(link.peer());
  }
  if (network.regions().find(id, 0, size) == nullptr) {
    return Status(Code::kNotFound, "the peer has deregistered the region").with_peer(link.peer());
  }
  std::unique_ptr<SimRemoteRegion> region(new SimRemoteRegion(link, size, id));
  if (network.options().maps_memory) region->mapped_ = network.regions().memory(id);
  return std::unique_ptr<RemoteRegion>(std::move(region));
}

}  // namespace dunlin::transport::sim
