#include "transports/verbs/transport.h"

#include "transports/verbs/factory.h"

namespace dunlin::transport::verbs {

namespace {

template <typename DataLane>
Result<std::unique_ptr<Link>> make_link(Engine& engine, Rank peer,
                                        std::span<const std::byte> encoded) {
  DUNLIN_ASSIGN(const Address address, Address::decode(encoded));
  DUNLIN_ASSIGN(Connection* const connection, engine.connect(peer, address));
  return std::unique_ptr<Link>(std::make_unique<VerbsLink<DataLane>>(engine, peer, *connection));
}

}  // namespace

Status VerbsTransport::reach(Rank peer, std::span<const std::byte> address) {
  DUNLIN_ASSIGN(const Address decoded, Address::decode(address));
  return engine_->reach(decoded).with_peer(peer);
}

Result<std::unique_ptr<Link>> VerbsTransport::connect(Rank peer,
                                                      std::span<const std::byte> address) {
  return make_link<VerbsLane>(*engine_, peer, address);
}

Result<std::unique_ptr<Link>> StripingTransport::connect(Rank peer,
                                                         std::span<const std::byte> address) {
  return make_link<StripingLane>(*engine_, peer, address);
}

Result<std::unique_ptr<TransportRegion>> VerbsTransport::register_memory(
    const std::shared_ptr<MemoryRegion>& memory) {
  return VerbsRegion::create(*engine_, memory);
}

Result<std::unique_ptr<Transport>> create_transport(const TransportContext& context) {
  DUNLIN_ASSIGN(auto engine, Engine::create(context));
  if (engine->has_rails())
    return std::unique_ptr<Transport>(std::make_unique<StripingTransport>(std::move(engine)));
  return std::unique_ptr<Transport>(std::make_unique<VerbsTransport>(std::move(engine)));
}

}  // namespace dunlin::transport::verbs
