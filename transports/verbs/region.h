// Regions of the verbs transport: ours, registered with the device, and a peer's by address and
// key.
#pragma once

#include <cstdint>
#include <memory>

#include "transports/imports.h"
#include "transports/transport.h"
#include "transports/verbs/engine.h"
#include "transports/verbs/stripes.h"

namespace dunlin::transport::verbs {

class VerbsRegion final : public TransportRegion {
 public:
  static Result<std::unique_ptr<TransportRegion>> create(Engine& engine,
                                                         std::shared_ptr<MemoryRegion> memory);
  ~VerbsRegion() override;
  std::string_view transport() const override { return "verbs"; }
  Bytes descriptor() const override;
  std::uint32_t local_key() const { return key_->local(); }
  PortKeys local_keys() const;

 private:
  VerbsRegion(Engine& engine, std::shared_ptr<MemoryRegion> memory, std::unique_ptr<MemoryKey> key);
  // With the ports behind the first.
  Status register_with_rails();
  Engine& engine_;
  std::shared_ptr<MemoryRegion> memory_;
  std::unique_ptr<MemoryKey> key_;
  std::vector<std::unique_ptr<MemoryKey>> rail_keys_;  // of the ports behind the first
  std::uint64_t id_;
};

class VerbsRemoteRegion final : public ImportedRegion {
 public:
  static Result<std::unique_ptr<RemoteRegion>> import(const Link& link, Connection& connection,
                                                      std::span<const std::byte> descriptor,
                                                      std::size_t size);

  std::uint64_t address() const { return address_; }
  std::uint32_t key() const { return key_; }
  const PortKeys& keys() const { return keys_; }

 private:
  using ImportedRegion::ImportedRegion;
  std::uint64_t address_ = 0;
  std::uint32_t key_ = 0;
  PortKeys keys_{};
};

}  // namespace dunlin::transport::verbs
