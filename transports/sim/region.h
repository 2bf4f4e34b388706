// Regions of the sim transport. They are entries of the network's table, identified by number.
#pragma once

#include <memory>

#include "transports/sim/network.h"
#include "transports/transport.h"

namespace dunlin::transport::sim {

class SimRegion final : public TransportRegion {
 public:
  SimRegion(Network& network, std::shared_ptr<MemoryRegion> memory)
      : network_(network), id_(network.regions().add(std::move(memory))) {}
  ~SimRegion() override;
  std::string_view transport() const override { return "sim"; }
  Bytes descriptor() const override;

 private:
  Network& network_;
  RegionId id_;
};

class SimRemoteRegion final : public RemoteRegion {
 public:
  static Result<std::unique_ptr<RemoteRegion>> import(Network& network, const Link& link,
                                                      std::span<const std::byte> descriptor,
                                                      std::size_t size);
  RegionId id() const { return id_; }
  std::byte* mapped() const override { return mapped_ ? mapped_->data() : nullptr; }

 private:
  SimRemoteRegion(const Link& link, std::size_t size, RegionId id)
      : RemoteRegion(link, size), id_(id) {}
  RegionId id_;
  // Null if the network does not map memory. It stays when its owner deregisters it, as mappings
  // of shared memory do.
  std::shared_ptr<MemoryRegion> mapped_;
};

}  // namespace dunlin::transport::sim
