// The ucx transport, which reaches peers over everything that UCX supports, at least over TCP.
#pragma once

#include <memory>

#include "transports/transport.h"
#include "transports/ucx/engine.h"
#include "transports/ucx/lane.h"

namespace dunlin::transport::ucx {

class UcxLink final : public Link {
 public:
  UcxLink(Engine& engine, Connection& connection)
      : Link(connection.peer()),
        connection_(connection),
        data_(engine, *this, connection, LaneKind::kData),
        control_(engine, *this, connection, LaneKind::kControl) {}

  Lane& data() override { return data_; }
  Lane& control() override { return control_; }
  Result<std::unique_ptr<RemoteRegion>> import_region(std::span<const std::byte> descriptor,
                                                      std::size_t size) override;

 private:
  Connection& connection_;
  UcxLane data_;
  UcxLane control_;
};

class UcxTransport final : public Transport {
 public:
  explicit UcxTransport(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  std::string_view name() const override { return "ucx"; }
  bool opens_on_demand() const override { return true; }
  Status open() override;
  Bytes address() const override { return engine_->address().encode(); }
  // Checks the address only. Whether UCX reaches the peer shows when it connects.
  Status reach(Rank peer, std::span<const std::byte> address) override;
  Result<std::unique_ptr<Link>> connect(Rank peer, std::span<const std::byte> address) override;
  Result<std::unique_ptr<TransportRegion>> register_memory(
      const std::shared_ptr<MemoryRegion>& memory) override;

  Status revoke(Rank peer) override { return engine_->revoke(peer); }

  std::size_t progress() override { return engine_->progress(); }
  bool is_in_use() const override { return engine_->has_connections(); }
  bool arm() override { return engine_->arm(); }
  // There is nothing to do, because UCX disarms itself.
  void disarm() override {}
  const std::vector<int>& wait_fds() const override { return wait_fds_; }

 private:
  std::unique_ptr<Engine> engine_;
  std::vector<int> wait_fds_;
};

}  // namespace dunlin::transport::ucx
