#include "transports/tcp/transport.h"

#include <fmt/format.h>

#include "transports/tcp/factory.h"
#include "transports/tcp/libcrypto.h"

namespace dunlin::transport::tcp {

Result<std::unique_ptr<RemoteRegion>> TcpLink::import_region(std::span<const std::byte> descriptor,
                                                             std::size_t size) {
  return TcpRemoteRegion::import(*this, peer_.imports, descriptor, size);
}

Result<std::vector<Endpoint>> TcpTransport::find_endpoints(Rank peer,
                                                           const Address& address) const {
  auto endpoints = address.reachable_from(engine_->address().host);
  if (!endpoints.empty()) return endpoints;
  std::string tried;
  for (const Endpoint& endpoint : address.endpoints)
    tried += (tried.empty() ? "" : ", ") + endpoint.to_string();
  return Status(Code::kUnavailable,
                fmt::format("this host has no route to any of the peer's addresses ({})", tried))
      .with_peer(peer);
}

Status TcpTransport::reach(Rank peer, std::span<const std::byte> encoded) {
  const auto address = Address::decode(encoded);
  if (!address) return address.status().with_peer(peer);
  return find_endpoints(peer, *address).status();
}

Result<std::unique_ptr<Link>> TcpTransport::connect(Rank peer, std::span<const std::byte> encoded) {
  DUNLIN_ASSIGN(const Address address, Address::decode(encoded));
  DUNLIN_ASSIGN(const auto endpoints, find_endpoints(peer, address));
  Peer& to = engine_->peer(peer);
  if (to.has_closed) return Status(Code::kPeerDead, "the peer has closed its end").with_peer(peer);
  return std::unique_ptr<Link>(std::make_unique<TcpLink>(*engine_, to, address, endpoints));
}

Result<std::unique_ptr<TransportRegion>> TcpTransport::register_memory(
    const std::shared_ptr<MemoryRegion>& memory) {
  return TcpRegion::create(*engine_, memory);
}

void load_libraries() {
  Libcrypto::load();
}

Result<std::unique_ptr<Transport>> create_transport(const TransportContext& context) {
  DUNLIN_ASSIGN(auto engine, Engine::create(context));
  return std::unique_ptr<Transport>(std::make_unique<TcpTransport>(std::move(engine)));
}

}  // namespace dunlin::transport::tcp
