// The tcp transport, which reaches peers over TCP without any other library. Its connections are
// authenticated by the job's key, and encrypted unless both ends switch that off.
#pragma once

#include <memory>

#include "transports/tcp/engine.h"
#include "transports/tcp/lane.h"
#include "transports/transport.h"

namespace dunlin::transport::tcp {

class TcpLink final : public Link {
 public:
  TcpLink(Engine& engine, Peer& peer, const Address& address,
          const std::vector<Endpoint>& endpoints)
      : Link(peer.rank),
        peer_(peer),
        data_(engine, *this, peer, LaneKind::kData, address, endpoints),
        control_(engine, *this, peer, LaneKind::kControl, address, endpoints) {}

  Lane& data() override { return data_; }
  Lane& control() override { return control_; }
  Result<std::unique_ptr<RemoteRegion>> import_region(std::span<const std::byte> descriptor,
                                                      std::size_t size) override;

 private:
  Peer& peer_;
  TcpLane data_;
  TcpLane control_;
};

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(std::unique_ptr<Engine> engine)
      : engine_(std::move(engine)), wait_fds_{engine_->poller().fd()} {}

  std::string_view name() const override { return "tcp"; }
  bool opens_on_demand() const override { return true; }
  Bytes outline() const override { return engine_->outline(); }
  Status open() override { return engine_->open(); }
  Status face(std::span<const std::byte> outline) override { return engine_->face(outline); }
  Bytes address() const override { return engine_->address().encode(); }
  // Checks that there is a route to one of the peer's addresses. Whether the peer answers there
  // shows when it is connected to.
  Status reach(Rank peer, std::span<const std::byte> address) override;
  // Returns at once. The lanes accept operations while they connect.
  Result<std::unique_ptr<Link>> connect(Rank peer, std::span<const std::byte> address) override;
  Result<std::unique_ptr<TransportRegion>> register_memory(
      const std::shared_ptr<MemoryRegion>& memory) override;

  Status revoke(Rank peer) override {
    engine_->end(peer);
    return Status::ok();
  }

  std::size_t progress() override { return engine_->progress(); }
  bool is_in_use() const override { return engine_->is_in_use(); }
  // The descriptor is readable for as long as a socket is ready, so there is nothing to prepare.
  bool arm() override { return true; }
  void disarm() override {}
  const std::vector<int>& wait_fds() const override { return wait_fds_; }

 private:
  // The endpoints to try, or why there are none.
  Result<std::vector<Endpoint>> find_endpoints(Rank peer, const Address& address) const;

  std::unique_ptr<Engine> engine_;
  std::vector<int> wait_fds_;
};

}  // namespace dunlin::transport::tcp
