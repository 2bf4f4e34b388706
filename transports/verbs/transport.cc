#include "transports/verbs/transport.h"

#include "transports/verbs/factory.h"
#include "transports/verbs/region.h"

namespace dunlin::transport::verbs {

Result<std::unique_ptr<RemoteRegion>> VerbsLink::import_region(
    std::span<const std::byte> descriptor, std::size_t size) {
  return VerbsRemoteRegion::import(*this, connection_, descriptor, size);
}

Status VerbsTransport::reach(Rank peer, std::span<const std::byte> address) {
  DUNLIN_ASSIGN(const Address decoded, Address::decode(address));
  return engine_->reach(decoded).with_peer(peer);
}

Result<std::unique_ptr<Link>> VerbsTransport::connect(Rank peer,
                                                      std::span<const std::byte> encoded) {
  DUNLIN_ASSIGN(const Address address, Address::decode(encoded));
  DUNLIN_ASSIGN(Connection* const connection, engine_->connect(peer, address));
  return std::unique_ptr<Link>(std::make_unique<VerbsLink>(*engine_, peer, *connection));
}

Result<std::unique_ptr<TransportRegion>> VerbsTransport::register_memory(
    const std::shared_ptr<MemoryRegion>& memory) {
  return VerbsRegion::create(*engine_, memory);
}

Result<std::unique_ptr<Transport>> create_transport(const TransportContext& context) {
  DUNLIN_ASSIGN(auto engine, Engine::create(context));
  return std::unique_ptr<Transport>(std::make_unique<VerbsTransport>(std::move(engine)));
}

}  // namespace dunlin::transport::verbs
