#include "transports/verbs/region.h"

#include <fmt/format.h>

namespace dunlin::transport::verbs {

Result<std::unique_ptr<TransportRegion>> VerbsRegion::create(Engine& engine,
                                                             std::shared_ptr<MemoryRegion> memory) {
  if (memory->kind() != MemoryKind::kHost) {
    return Status(Code::kUnavailable,
                  fmt::format("verbs can't reach {} memory", to_string(memory->kind())));
  }
  DUNLIN_ASSIGN(auto key, MemoryKey::create(engine.domain(), *memory));
  return std::unique_ptr<TransportRegion>(
      new VerbsRegion(engine, std::move(memory), std::move(key)));
}

VerbsRegion::VerbsRegion(Engine& engine, std::shared_ptr<MemoryRegion> memory,
                         std::unique_ptr<MemoryKey> key)
    : engine_(engine),
      memory_(std::move(memory)),
      key_(std::move(key)),
      id_(engine.next_region()) {}

VerbsRegion::~VerbsRegion() {
  engine_.revoke(id_, std::move(memory_), std::move(key_));
}

Bytes VerbsRegion::descriptor() const {
  ByteWriter writer;
  writer.number(id_).number(reinterpret_cast<std::uint64_t>(memory_->data()));
  writer.number(key_->remote());
  return writer.take();
}

Result<std::unique_ptr<RemoteRegion>> VerbsRemoteRegion::import(
    const Link& link, Connection& connection, std::span<const std::byte> descriptor,
    std::size_t size) {
  ByteReader reader(descriptor);
  const auto id = reader.number<std::uint64_t>();
  std::unique_ptr<VerbsRemoteRegion> region(
      new VerbsRemoteRegion(link, connection.imports, id, size));
  region->address_ = reader.number<std::uint64_t>();
  region->key_ = reader.number<std::uint32_t>();
  if (!reader.at_end() || id == 0) {
    return Status(Code::kCorrupted, "malformed verbs region descriptor").with_peer(link.peer());
  }
  return std::unique_ptr<RemoteRegion>(std::move(region));
}

}  // namespace dunlin::transport::verbs
