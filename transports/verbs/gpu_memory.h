// GpuMemory: a region of GPU memory as an RDMA device reaches it, in the first of three ways that
// works: directly, registered as a dma-buf; directly, registered by its addresses, which the kernel
// module nvidia-peermem makes sense of; staged, through shadows in the host's memory.
//
// A staged region has two shadows as large as itself. One is what peers write to: they say what
// they have written (a landing note, wire.h), and land() copies it to the GPU before anything
// behind it is published. The other is the local end of puts and gets: fetch() copies a put's bytes
// into it before the put is posted, deliver() a get's out of it before the get completes. They are
// two so that the one never overwrites what has just arrived in the other.
//
// Of a direct region, land() and deliver() flush what a device has written, on GPUs that need it.
//
// Work of the GPU that makes a put's bytes has to be finished when the put is posted. Copies block
// until they are done, like the memcpy of shared memory. Owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/clock.h"
#include "runtime/config.h"
#include "runtime/gpu/driver.h"
#include "transports/verbs/handle.h"

namespace dunlin::transport::verbs {

enum class GpuWay : std::uint8_t { kDmaBuf, kPeerMemory, kStaging };
const char* to_string(GpuWay way);

// What the RDMA device does for it; tests have one without a device.
class GpuRegistrar {
 public:
  virtual ~GpuRegistrar() = default;
  // Ok if the kernel and the device's driver take dma-bufs at all.
  virtual Status check_dma_buf() = 0;
  virtual Result<std::unique_ptr<MemoryKey>> register_dma_buf(const DmaBuf& exported,
                                                              const MemoryRegion& memory) = 0;
  virtual Result<std::unique_ptr<MemoryKey>> register_addresses(const MemoryRegion& memory) = 0;
};

class DomainRegistrar final : public GpuRegistrar {
 public:
  // The domain outlives it.
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
  // kUnavailable says of each way that `wanted` allows why it doesn't work. Copies get `patience`
  // of the clock, which outlives it.
  static Result<std::unique_ptr<GpuMemory>> create(GpuRegistrar& registrar,
                                                   std::shared_ptr<MemoryRegion> memory,
                                                   VerbsGpu wanted, const Clock& clock,
                                                   Duration patience);

  GpuWay way() const { return way_; }
  // Why it is none of the better ways, in words; empty for the best.
  const std::string& refusals() const { return refusals_; }
  bool is_staged() const { return way_ == GpuWay::kStaging; }
  // Peers have to say what they have written, with land().
  bool wants_landings() const { return is_staged() || needs_flush_; }

  // What peers read and write.
  const RegisteredMemory& target() const { return target_; }
  // The local end of an operation on data() + offset.
  const RegisteredMemory& local() const { return is_staged() ? local_ : target_; }
  std::size_t size() const { return memory_->size(); }
  // A copy was not done in time, so that the GPU may still be at it, and at the shadows: nothing
  // works any more.
  bool is_stuck() const { return is_stuck_; }

  // The range was checked before: it lies within the region.
  Status fetch(std::size_t offset, std::size_t size);
  Status deliver(std::size_t offset, std::size_t size);
  // kOutOfRange for a range that a peer got wrong.
  Status land(std::size_t offset, std::size_t size);

  // What somebody may still write to, once this is gone.
  RegisteredMemory release_target() { return std::move(target_); }
  RegisteredMemory release_local() { return std::move(local_); }

 private:
  GpuMemory(std::shared_ptr<MemoryRegion> memory, const Clock& clock, Duration patience)
      : memory_(std::move(memory)), clock_(clock), patience_(patience) {}
  Status try_way(GpuWay way, GpuRegistrar& registrar);
  Status prepare_direct_access() const;
  Status register_dma_buf(GpuRegistrar& registrar);
  Status register_addresses(GpuRegistrar& registrar);
  Status make_shadows(GpuRegistrar& registrar);
  const GpuDevice& device() const;
  // Has the GPU see what a device wrote there, or to its shadow.
  Status take(const RegisteredMemory& shadow, std::size_t offset, std::size_t size);
  Status check_stream() const;
  Status wait(const char* direction, std::size_t size);

  std::shared_ptr<MemoryRegion> memory_;
  const Clock& clock_;
  Duration patience_;
  GpuWay way_ = GpuWay::kStaging;
  std::string refusals_;
  bool needs_flush_ = false;
  bool is_stuck_ = false;
  RegisteredMemory target_;
  RegisteredMemory local_;             // staged
  std::unique_ptr<GpuStream> stream_;  // staged
};

}  // namespace dunlin::transport::verbs
