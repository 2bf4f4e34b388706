// GpuMemory: a region of GPU memory that an RDMA device accesses in the first of three ways that
// works.
//   1. Directly, registered as a dma-buf.
//   2. Directly, registered by its addresses, which the kernel module nvidia-peermem resolves.
//   3. Staged, through shadow buffers in host memory.
//
// A staged region has two shadows, each as large as the region. Peers write to the first. They send
// landing notes (connect/wire.h) that say which bytes they have written, and land() copies these to
// the GPU before any later notification is published. The second shadow is the local end of puts
// and gets: fetch() copies the bytes of a put into it before the put is posted, and deliver()
// copies the bytes of a get out of it before the get completes. There are two so that a put never
// overwrites bytes that have just arrived.
//
// For a region that is registered directly, land() and deliver() flush the device's writes, on GPUs
// that need it.
//
// GPU work that produces the bytes of a put must have finished when the put is posted. Copies block
// until they are done, like the memcpy of shared memory. Owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/clock.h"
#include "runtime/config.h"
#include "runtime/gpu/driver.h"
#include "transports/verbs/device/handle.h"

namespace dunlin::transport::verbs {

enum class GpuWay : std::uint8_t { kDmaBuf, kPeerMemory, kStaging };
const char* to_string(GpuWay way);

// What GpuMemory needs of an RDMA device. Tests implement it without a device.
class GpuRegistrar {
 public:
  virtual ~GpuRegistrar() = default;
  // Ok if the kernel and the device's driver support dma-bufs at all.
  virtual Status check_dma_buf() = 0;
  virtual Result<std::unique_ptr<MemoryKey>> register_dma_buf(const DmaBuf& exported,
                                                              const MemoryRegion& memory) = 0;
  virtual Result<std::unique_ptr<MemoryKey>> register_addresses(const MemoryRegion& memory) = 0;
};

class DomainRegistrar final : public GpuRegistrar {
 public:
  // The domain must outlive the registrar.
  explicit DomainRegistrar(const ProtectionDomain& domain) : domain_(domain) {}
  Status check_dma_buf() override { return verbs::check_dma_buf(domain_); }
  Result<std::unique_ptr<MemoryKey>> register_dma_buf(const DmaBuf& exported,
                                                      const MemoryRegion& memory) override {
    return MemoryKey::create(domain_, exported, memory);
  }
  Result<std::unique_ptr<MemoryKey>> register_addresses(const MemoryRegion& memory) override {
    return MemoryKey::create(domain_, memory);
  }

 private:
  const ProtectionDomain& domain_;
};

class GpuMemory {
 public:
  // Tries the ways that `wanted` allows. kUnavailable says for each why it does not work. A copy
  // fails after `copy_timeout`. The clock must outlive the object.
  static Result<std::unique_ptr<GpuMemory>> create(GpuRegistrar& registrar,
                                                   std::shared_ptr<MemoryRegion> memory,
                                                   VerbsGpu wanted, const Clock& clock,
                                                   Duration copy_timeout);

  GpuWay way() const { return way_; }
  // Why each better way does not work; empty for the best way.
  const std::string& refusals() const { return refusals_; }
  bool is_staged() const { return way_ == GpuWay::kStaging; }
  // Whether peers must send landing notes, so that land() can be called.
  bool wants_landings() const { return is_staged() || needs_flush_; }

  // The memory that peers read and write.
  const RegisteredMemory& target() const { return target_; }
  // The memory that is the local end of operations.
  const RegisteredMemory& local() const { return is_staged() ? local_ : target_; }
  std::size_t size() const { return memory_->size(); }
  // Whether a copy timed out. The GPU may still be reading or writing the shadows, so every later
  // operation fails.
  bool is_stuck() const { return is_stuck_; }

  // The range must lie within the region.
  Status fetch(std::size_t offset, std::size_t size);
  Status deliver(std::size_t offset, std::size_t size);
  // kOutOfRange if the range, which comes from a peer, does not lie within the region.
  Status land(std::size_t offset, std::size_t size);

  // These hand over memory that peers or the GPU may still write to after this object is destroyed.
  RegisteredMemory release_target() { return std::move(target_); }
  RegisteredMemory release_local() { return std::move(local_); }

 private:
  GpuMemory(std::shared_ptr<MemoryRegion> memory, const Clock& clock, Duration copy_timeout)
      : memory_(std::move(memory)), clock_(clock), copy_timeout_(copy_timeout) {}
  Status try_way(GpuWay way, GpuRegistrar& registrar);
  Status prepare_direct_access() const;
  Status register_dma_buf(GpuRegistrar& registrar);
  Status register_addresses(GpuRegistrar& registrar);
  Status make_shadows(GpuRegistrar& registrar);
  const GpuDevice& device() const;
  // Makes bytes that a device wrote to the memory, or to its shadow, visible to the GPU.
  Status take(const RegisteredMemory& shadow, std::size_t offset, std::size_t size);
  Status check_stream() const;
  Status wait(const char* direction, std::size_t size);

  std::shared_ptr<MemoryRegion> memory_;
  const Clock& clock_;
  Duration copy_timeout_;
  GpuWay way_ = GpuWay::kStaging;
  std::string refusals_;
  bool needs_flush_ = false;
  bool is_stuck_ = false;
  RegisteredMemory target_;
  RegisteredMemory local_;             // only if staged
  std::unique_ptr<GpuStream> stream_;  // only if staged
};

}  // namespace dunlin::transport::verbs
