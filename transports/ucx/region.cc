#include "transports/ucx/region.h"

#include <fmt/format.h>

#include "runtime/log.h"
#include "transports/ucx/engine.h"

namespace dunlin::transport::ucx {

std::uint64_t RegionTable::add(std::shared_ptr<MemoryRegion> memory) {
  const bool is_kept = memory->is_owned();
  entries_.emplace(next_id_, Entry{std::move(memory), is_kept});
  return next_id_++;
}

const RegionTable::Entry* RegionTable::find(std::uint64_t id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

Result<std::unique_ptr<TransportRegion>> UcxRegion::create(Engine& engine,
                                                           std::shared_ptr<MemoryRegion> memory) {
  if (memory->kind() != MemoryKind::kHost) {
    return Status(Code::kUnavailable,
                  fmt::format("ucx cannot access {} memory", to_string(memory->kind())));
  }
  DUNLIN_ASSIGN(std::shared_ptr<const MemoryHandle> handle,
                MemoryHandle::map(engine.ucp(), *memory));
  Bytes key;
  if (engine.uses_rma() && memory->is_owned()) {
    DUNLIN_ASSIGN(key, handle->pack_key());
  }
  return std::unique_ptr<TransportRegion>(
      new UcxRegion(engine, {std::move(memory), std::move(handle)}, std::move(key)));
}

UcxRegion::UcxRegion(Engine& engine, MappedMemory mapped, Bytes key)
    : engine_(engine),
      mapped_(std::move(mapped)),
      key_(std::move(key)),
      id_(engine.regions().add(mapped_.memory)),
      is_kept_(mapped_.memory->is_owned()) {}

UcxRegion::~UcxRegion() {
  engine_.regions().remove(id_);
  engine_.announce_revoked(id_);
  if (!key_.empty()) engine_.regions().quarantine(std::move(mapped_));
}

Bytes UcxRegion::descriptor() const {
  const auto address = reinterpret_cast<std::uintptr_t>(mapped_.memory->data());
  return UcxDescriptor{id_, address, is_kept_, key_}.encode();
}

Result<std::unique_ptr<RemoteRegion>> UcxRemoteRegion::import(const Link& link,
                                                              Connection& connection,
                                                              std::span<const std::byte> descriptor,
                                                              std::size_t size) {
  auto decoded = UcxDescriptor::decode(descriptor);
  if (!decoded) return std::move(decoded).status().with_peer(link.peer());
  std::unique_ptr<UcxRemoteRegion> region(
      new UcxRemoteRegion(link, connection.imports(), decoded->id, size));
  region->address_ = decoded->address;
  region->is_kept_ = decoded->is_kept;
  const Bytes& key = decoded->key;
  for (const LaneKind kind : kBothLanes) {
    const Endpoint* endpoint = connection.path(kind).endpoint.get();
    if (endpoint == nullptr) return Status(connection.path(kind).failure);
    if (key.empty() || !connection.uses_rma()) continue;
    auto unpacked = RemoteKey::unpack(*endpoint, key);
    // This is not an error: messages reach what RMA does not.
    if (!unpacked)
      DUNLIN_DEBUG("no RMA to rank {}: {}", link.peer().value(), unpacked.status().to_string());
    if (unpacked) region->keys_[index_of(kind)] = std::move(unpacked).value();
  }
  return std::unique_ptr<RemoteRegion>(std::move(region));
}

}  // namespace dunlin::transport::ucx
