// The verbs transport, which reaches peers over InfiniBand or RoCE.
#pragma once

#include <memory>

#include "transports/transport.h"
#include "transports/verbs/engine.h"
#include "transports/verbs/lane.h"
#include "transports/verbs/region.h"

namespace dunlin::transport::verbs {

// `DataLane` is VerbsLane, or StripingLane if there are rails.
template <typename DataLane>
class VerbsLink final : public Link {
 public:
  VerbsLink(Engine& engine, Rank peer, Connection& connection)
      : Link(peer),
        connection_(connection),
        data_(engine, *this, connection, LaneKind::kData),
        control_(engine, *this, connection, LaneKind::kControl) {}

  Lane& data() override { return data_; }
  Lane& control() override { return control_; }
  Result<std::unique_ptr<RemoteRegion>> import_region(std::span<const std::byte> descriptor,
                                                      std::size_t size) override {
    return VerbsRemoteRegion::import(*this, connection_, descriptor, size);
  }

 private:
  Connection& connection_;
  DataLane data_;
  VerbsLane control_;
};

class VerbsTransport : public Transport {
 public:
  explicit VerbsTransport(std::unique_ptr<Engine> engine)
      : engine_(std::move(engine)), wait_fds_(engine_->wait_fds()) {}

  std::string_view name() const override { return "verbs"; }
  Bytes address() const override { return engine_->address().encode(); }
  // Checks the kinds of the ports. Whether there is a route shows only when librdmacm connects, or
  // when the first message is sent.
  Status reach(Rank peer, std::span<const std::byte> address) override;
  Result<std::unique_ptr<Link>> connect(Rank peer, std::span<const std::byte> address) override;
  Result<std::unique_ptr<TransportRegion>> register_memory(
      const std::shared_ptr<MemoryRegion>& memory) override;

  Status revoke(Rank peer) override {
    engine_->end(peer);
    return Status::ok();
  }

  [[gnu::hot]] std::size_t progress() override { return engine_->progress(); }
  bool arm() override { return engine_->arm(); }
  void disarm() override { engine_->disarm(); }
  [[gnu::hot]] bool is_in_use() const override { return engine_->is_in_use(); }
  const std::vector<int>& wait_fds() const override { return wait_fds_; }

 protected:
  std::unique_ptr<Engine> engine_;

 private:
  std::vector<int> wait_fds_;
};

// The transport with rails. A class of its own, so that a transport without rails does not pay for
// them.
class StripingTransport final : public VerbsTransport {
 public:
  using VerbsTransport::VerbsTransport;
  Result<std::unique_ptr<Link>> connect(Rank peer, std::span<const std::byte> address) override;
  std::size_t progress() override { return engine_->progress_with_rails(); }
};

}  // namespace dunlin::transport::verbs
