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
  ByteWriter writer;
  writer.number(id_).number(reinterpret_cast<std::uint64_t>(mapped_.memory->data()));
  writer.number(static_cast<std::uint8_t>(is_kept_)).blob(key_);
  return writer.take();
}

Result<std::unique_ptr<RemoteRegion>> UcxRemoteRegion::import(const Link& link,
                                                              Connection& connection,
                                                              std::span<const std::byte> descriptor,
                                                              std::size_t size) {
  ByteReader reader(descriptor);
  const auto id = reader.number<std::uint64_t>();
  std::unique_ptr<UcxRemoteRegion> region(
      new UcxRemoteRegion(link, connection.imports(), id, size));
  region->address_ = reader.number<std::uint64_t>();
  region->is_kept_ = reader.number<std::uint8_t>() != 0;
  const auto key = reader.blob();
  if (!reader.at_end() || id == 0) {
    return Status(Code::kCorrupted, "malformed ucx region descriptor").with_peer(link.peer());
  }
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
