// The sim transport, whose peers are on a simulated network, all in this thread. A fabric gets it
// from Network::factory(). It is not a builtin transport.
#pragma once

#include <memory>
#include <vector>

#include "transports/sim/endpoint.h"
#include "transports/sim/lane.h"
#include "transports/sim/network.h"
#include "transports/transport.h"

namespace dunlin::transport::sim {

class SimLink final : public Link {
 public:
  SimLink(Endpoint& endpoint, Rank peer)
      : Link(peer),
        endpoint_(endpoint),
        data_(endpoint, *this, LaneKind::kData),
        control_(endpoint, *this, LaneKind::kControl) {}

  Lane& data() override { return data_; }
  Lane& control() override { return control_; }
  Result<std::unique_ptr<RemoteRegion>> import_region(std::span<const std::byte> descriptor,
                                                      std::size_t size) override;

 private:
  Endpoint& endpoint_;
  SimLane data_;
  SimLane control_;
};

class SimTransport final : public Transport {
 public:
  SimTransport(Network& network, const TransportContext& context)
      : endpoint_(network, context.self, context.board, context.peers, &context.counters) {}

  std::string_view name() const override { return "sim"; }
  Bytes address() const override { return {}; }
  Status reach(Rank peer, std::span<const std::byte> address) override;
  Result<std::unique_ptr<Link>> connect(Rank peer, std::span<const std::byte> address) override;
  Result<std::unique_ptr<TransportRegion>> register_memory(
      const std::shared_ptr<MemoryRegion>& memory) override;

  Status revoke(Rank peer) override {
    endpoint_.network().revoke(peer, endpoint_.rank());
    return Status::ok();
  }

  std::size_t progress() override { return endpoint_.progress(); }
  // The thread must not sleep: it is the one that makes the network's events happen.
  bool arm() override { return false; }
  void disarm() override {}
  const std::vector<int>& wait_fds() const override { return no_fds_; }

 private:
  Endpoint endpoint_;
  std::vector<int> no_fds_;
};

}  // namespace dunlin::transport::sim
