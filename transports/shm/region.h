// Regions of the shm transport: ShmRegion is an entry in this process's table of generations
// (segment.h), and ShmRemoteRegion is a peer's region. It is mapped here: for the CPU, or, if it is
// GPU memory, for the GPUs of this process. Memory of another process that Dunlin did not allocate
// cannot be mapped, and is accessed by system calls (process_memory.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/gpu/ranges.h"
#include "transports/shm/descriptor.h"
#include "transports/shm/gpu_queue.h"
#include "transports/shm/retired_memory.h"
#include "transports/shm/segment.h"
#include "transports/transport.h"

namespace dunlin::transport::shm {

// What the regions and lanes of a transport share to access memory that the CPU cannot.
struct ShmIndirect {
  // The driver of this process, loaded at the first call. kUnavailable says why there is none.
  Result<std::shared_ptr<GpuDriver>> driver();

  bool is_used = false;  // such a region was registered or imported
  BusyQueues busy;

 private:
  std::shared_ptr<GpuDriver> driver_;
};

// An allocation of the driver that peers can open, and where a region begins in it.
struct SharedGpuRegion {
  SharedGpuMemory allocation;
  std::uint64_t offset = 0;
};

class ShmRegion final : public TransportRegion {
 public:
  // Lets peers open GPU memory. kUnavailable if the driver does not share whole allocations of this
  // kind.
  static Result<SharedGpuRegion> share(const MemoryRegion& memory);
  // GPU memory that the driver does not share, neither as an allocation (CUDA IPC) nor as a range
  // of pieces (runtime/gpu/ranges.h), can be used at this end of operations, but no peer can access
  // it. The same holds for host memory without a file descriptor (wrapped memory), unless peers may
  // access it by system calls. `retired` gets the memory at the end if peers may have it open. It
  // outlives the region, as does `server`, which serves peers in other PID namespaces and may be
  // null. `shared`: what share() has returned, if it was asked.
  ShmRegion(std::shared_ptr<MemoryRegion> memory, std::optional<SharedGpuRegion> shared,
            SegmentLayout& layout, RetiredMemory& retired, std::uint32_t place,
            std::uint64_t generation, bool allows_system_calls, DescriptorServer* server);
  ~ShmRegion() override;
  std::string_view transport() const override { return "shm"; }
  Bytes descriptor() const override;

 private:
  void describe_gpu(ShmDescriptor& descriptor) const;

  std::shared_ptr<MemoryRegion> memory_;
  std::optional<SharedGpuRegion> shared_;
  SegmentLayout& layout_;
  RetiredMemory& retired_;
  std::uint32_t place_;
  std::uint64_t generation_;
  bool allows_system_calls_;
  DescriptorServer* server_;
  // Memory that was exported as a range, whose descriptors peers take over.
  mutable std::optional<ExportedGpuRange> range_;
};

class ShmRemoteRegion final : public RemoteRegion {
 public:
  static Result<std::unique_ptr<RemoteRegion>> import(const Link& link, PeerProcess& process,
                                                      const PeerSegment& segment,
                                                      std::span<const std::byte> descriptor,
                                                      std::size_t size, ShmIndirect& indirect);
  ~ShmRemoteRegion() override;

  // The address of the mapping: for the CPU, or, if it is GPU memory, for GPUs. If the memory
  // cannot be mapped, it is the address at the peer.
  std::byte* data() const { return data_; }
  // Whether the memory is accessed by system calls.
  bool is_unmapped() const { return is_unmapped_; }
  std::byte* mapped() const override { return gpu_ == nullptr && !is_unmapped_ ? data_ : nullptr; }
  // The memory was opened for the GPU that it belongs to. Kernels of other GPUs cannot access it
  // there, but copies can.
  std::byte* gpu_mapped(int device) const override {
    return gpu_ == nullptr || device != gpu_device_ ? nullptr : data_;
  }
  // Null for host memory.
  GpuDriver* gpu() const { return gpu_.get(); }
  int gpu_device() const { return gpu_device_; }
  std::uint32_t place() const { return place_; }
  std::uint64_t generation() const { return generation_; }

 private:
  ShmRemoteRegion(const Link& link, std::size_t size, std::uint32_t place, std::uint64_t generation)
      : RemoteRegion(link, size), place_(place), generation_(generation) {}
  Status map_host(const Link& link, PeerProcess& process, const PeerSegment& segment,
                  const FileMemory& host, std::size_t size);
  Status open_gpu(const Link& link, const PeerSegment& segment, const AllocatedGpuMemory& memory,
                  ShmIndirect& indirect);
  Status map_gpu_range(const Link& link, pid_t pid, const PeerSegment& segment,
                       const GpuPieces& range, ShmIndirect& indirect);
  Status reach_private(const Link& link, PeerProcess& process, std::uint64_t address,
                       std::size_t size, ShmIndirect& indirect);

  std::uint32_t place_;
  std::uint64_t generation_;
  std::byte* data_ = nullptr;
  bool is_unmapped_ = false;
  std::shared_ptr<MemoryRegion> memory_;  // of the host
  std::shared_ptr<GpuDriver> gpu_;
  int gpu_device_ = 0;
  SharedGpuMemory shared_;                  // what was opened
  std::unique_ptr<MappedGpuRange> range_;   // or what was mapped
  std::optional<RecordedOpening> opening_;  // of memory that the peer frees when it is closed
};

}  // namespace dunlin::transport::shm
