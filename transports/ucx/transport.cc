#include "transports/ucx/transport.h"

#include "transports/ucx/factory.h"

namespace dunlin::transport::ucx {

Result<std::unique_ptr<RemoteRegion>> UcxLink::import_region(std::span<const std::byte> descriptor,
                                                             std::size_t size) {
  return UcxRemoteRegion::import(*this, connection_, descriptor, size);
}

Status UcxTransport::open() {
  DUNLIN_TRY(engine_->open());
  for (const LaneKind kind : kBothLanes) wait_fds_.push_back(engine_->worker(kind).event_fd());
  return Status::ok();
}

Status UcxTransport::reach(Rank peer, std::span<const std::byte> address) {
  return Address::decode(address).status().with_peer(peer);
}

Result<std::unique_ptr<Link>> UcxTransport::connect(Rank peer, std::span<const std::byte> encoded) {
  DUNLIN_ASSIGN(const Address address, Address::decode(encoded));
  DUNLIN_ASSIGN(Connection* const connection, engine_->connect(peer, address));
  return std::unique_ptr<Link>(std::make_unique<UcxLink>(*engine_, *connection));
}

Result<std::unique_ptr<TransportRegion>> UcxTransport::register_memory(
    const std::shared_ptr<MemoryRegion>& memory) {
  return UcxRegion::create(*engine_, memory);
}

Result<std::unique_ptr<Transport>> create_transport(const TransportContext& context) {
  DUNLIN_ASSIGN(auto engine, Engine::create(context));
  return std::unique_ptr<Transport>(std::make_unique<UcxTransport>(std::move(engine)));
}

}  // namespace dunlin::transport::ucx
