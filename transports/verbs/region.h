// Regions of the verbs transport: VerbsRegion is memory of this process, registered with the device
// (memory/gpu_memory.h does that for GPU memory), and VerbsRemoteRegion is a peer's, by address and
// key.
#pragma once

#include <cstdint>
#include <memory>

#include "transports/imports.h"
#include "transports/transport.h"
#include "transports/verbs/engine.h"
#include "transports/verbs/memory/gpu_memory.h"
#include "transports/verbs/rails/stripes.h"

namespace dunlin::transport::verbs {

class VerbsRegion final : public TransportRegion {
 public:
  static Result<std::unique_ptr<TransportRegion>> create(Engine& engine,
                                                         std::shared_ptr<MemoryRegion> memory);
  ~VerbsRegion() override;
  std::string_view transport() const override { return "verbs"; }
  Bytes descriptor() const override;
  // Null for host memory.
  GpuMemory* gpu() const { return gpu_.get(); }
  // The address that the device uses for a slice of this region.
  std::uint64_t local_address(const LocalSlice& slice) const {
    return reinterpret_cast<std::uint64_t>(local().memory->data() +
                                           (slice.data() - memory_->data()));
  }
  std::uint32_t local_key() const { return local().key->local(); }
  // The local keys by port. The region must be host memory.
  PortKeys local_keys() const;

 private:
  VerbsRegion(Engine& engine, std::shared_ptr<MemoryRegion> memory);
  const RegisteredMemory& target() const { return gpu_ ? gpu_->target() : host_; }
  const RegisteredMemory& local() const { return gpu_ ? gpu_->local() : host_; }
  Status register_host();
  Status register_gpu();

  Engine& engine_;
  std::shared_ptr<MemoryRegion> memory_;
  RegisteredMemory host_;
  std::unique_ptr<GpuMemory> gpu_;
  std::uint64_t id_;
};

class VerbsRemoteRegion final : public ImportedRegion {
 public:
  static Result<std::unique_ptr<RemoteRegion>> import(const Link& link, Connection& connection,
                                                      std::span<const std::byte> descriptor,
                                                      std::size_t size);

  std::uint64_t address() const { return address_; }
  std::uint32_t key() const { return keys_[0]; }
  // Whether the region is on a GPU. Such a region is registered with the first port only.
  bool is_on_gpu() const { return is_on_gpu_; }
  // Whether the peer's device accesses memory of a GPU there, and the peer's number of that GPU.
  bool is_in_gpu_memory() const { return is_on_gpu_ && !is_shadow_; }
  std::uint32_t gpu() const { return gpu_; }
  // Whether a put must be followed by a landing note.
  bool wants_landings() const { return wants_landings_; }
  // Whether the address is that of a shadow, which takes no gets and atomics.
  bool is_shadow() const { return is_shadow_; }
  const PortKeys& keys() const { return keys_; }

 private:
  using ImportedRegion::ImportedRegion;
  std::uint64_t address_ = 0;
  bool is_on_gpu_ = false;
  bool wants_landings_ = false;
  bool is_shadow_ = false;
  std::uint32_t gpu_ = 0;
  PortKeys keys_{};
};

}  // namespace dunlin::transport::verbs
