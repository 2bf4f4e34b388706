#include "transports/tcp/region.h"

#include <fmt/format.h>

#include "transports/tcp/engine.h"

namespace dunlin::transport::tcp {

std::uint64_t RegionTable::add(std::shared_ptr<MemoryRegion> memory) {
  regions_.emplace(next_id_, std::move(memory));
  return next_id_++;
}

RegionTable::Found RegionTable::find(std::uint64_t id, std::uint64_t offset,
                                     std::uint64_t size) const {
  const auto found = regions_.find(id);
  if (found == regions_.end()) return {Code::kNotFound};
  const MemoryRegion& memory = *found->second;
  if (offset > memory.size() || size > memory.size() - offset) return {Code::kOutOfRange};
  return {Code::kOk, memory.data() + offset};
}

Result<std::unique_ptr<TransportRegion>> TcpRegion::create(Engine& engine,
                                                           std::shared_ptr<MemoryRegion> memory) {
  if (memory->kind() != MemoryKind::kHost) {
    return Status(Code::kUnavailable,
                  fmt::format("tcp cannot access {} memory", to_string(memory->kind())));
  }
  const std::uint64_t id = engine.regions().add(std::move(memory));
  return std::unique_ptr<TransportRegion>(std::make_unique<TcpRegion>(engine, id));
}

TcpRegion::~TcpRegion() {
  engine_.regions().remove(id_);
  engine_.revoke(id_);
}

Bytes TcpRegion::descriptor() const {
  return TcpDescriptor{id_}.encode();
}

Result<std::unique_ptr<RemoteRegion>> TcpRemoteRegion::import(const Link& link, Imports& imports,
                                                              std::span<const std::byte> descriptor,
                                                              std::size_t size) {
  auto decoded = TcpDescriptor::decode(descriptor);
  if (!decoded) return std::move(decoded).status().with_peer(link.peer());
  return std::unique_ptr<RemoteRegion>(new TcpRemoteRegion(link, imports, decoded->id, size));
}

}  // namespace dunlin::transport::tcp
