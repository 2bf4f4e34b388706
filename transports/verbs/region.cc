#include "transports/verbs/region.h"

#include <fmt/format.h>

namespace dunlin::transport::verbs {

Result<std::unique_ptr<TransportRegion>> VerbsRegion::create(Engine& engine,
                                                             std::shared_ptr<MemoryRegion> memory) {
  if (memory->kind() != MemoryKind::kHost) {
    return Status(Code::kUnavailable,
                  fmt::format("verbs can't reach {} memory", to_string(memory->kind())));
  }
  DUNLIN_ASSIGN(auto key, MemoryKey::create(engine.port(0).domain(), *memory));
  std::unique_ptr<VerbsRegion> region(new VerbsRegion(engine, std::move(memory), std::move(key)));
  DUNLIN_TRY(region->register_with_rails());
  return std::unique_ptr<TransportRegion>(std::move(region));
}

VerbsRegion::VerbsRegion(Engine& engine, std::shared_ptr<MemoryRegion> memory,
                         std::unique_ptr<MemoryKey> key)
    : engine_(engine),
      memory_(std::move(memory)),
      key_(std::move(key)),
      id_(engine.next_region()) {}

VerbsRegion::~VerbsRegion() {
  rail_keys_.push_back(std::move(key_));
  engine_.revoke(id_, std::move(memory_), std::move(rail_keys_));
}

Status VerbsRegion::register_with_rails() {
  for (std::size_t port = 1; port < engine_.ports(); ++port) {
    DUNLIN_ASSIGN(auto key, MemoryKey::create(engine_.port(port).domain(), *memory_));
    rail_keys_.push_back(std::move(key));
  }
  return Status::ok();
}

PortKeys VerbsRegion::local_keys() const {
  PortKeys keys{local_key()};
  for (std::size_t i = 0; i < rail_keys_.size(); ++i) keys[i + 1] = rail_keys_[i]->local();
  return keys;
}

Bytes VerbsRegion::descriptor() const {
  ByteWriter writer;
  writer.number(id_).number(reinterpret_cast<std::uint64_t>(memory_->data()));
  writer.number(key_->remote()).number(static_cast<std::uint8_t>(rail_keys_.size()));
  for (const auto& key : rail_keys_) writer.number(key->remote());
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
  region->keys_[0] = region->key_ = reader.number<std::uint32_t>();
  const std::size_t more = reader.number<std::uint8_t>();
  for (std::size_t port = 1; port <= more && port < kMostPorts; ++port)
    region->keys_[port] = reader.number<std::uint32_t>();
  if (!reader.at_end() || id == 0) {
    return Status(Code::kCorrupted, "malformed verbs region descriptor").with_peer(link.peer());
  }
  return std::unique_ptr<RemoteRegion>(std::move(region));
}

}  // namespace dunlin::transport::verbs
