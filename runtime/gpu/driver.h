// GpuDriver: the functions of a GPU driver that Dunlin needs. It finds the device of an address,
// allocates memory, copies, and gives network devices direct access to GPU memory.
//
// load_cuda_driver() (cuda_driver.h) makes a GpuDriver over CUDA; tests have one without a GPU.
// When the driver, the kernel or the device lacks a feature, a Status gives the reason, so that the
// caller can choose another way. Regions of GPU memory share the driver and keep it alive. Any
// thread, except that one thread uses a GpuStream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/fd.h"
#include "runtime/status.h"

namespace dunlin {

// Whether kernels of a GPU see the data that another device has written to the GPU's memory, once
// that device has reported completion (CUDA: GPUDirect RDMA writes ordering).
enum class GpuWrites : std::uint8_t {
  kOrdered,    // they see the data
  kNeedFlush,  // they see the data after GpuDriver::flush_writes()
  kUnordered,  // they may not, and the driver has no flush: direct writes cannot be used
};

struct GpuDevice {
  int number = 0;
  std::string name;
  std::string pci_bus_id;  // "0000:3b:00.0", as in /sys/bus/pci/devices; empty: not known
  std::size_t memory_bytes = 0;
  int compute_major = 0;  // compute capability
  int compute_minor = 0;
  Status dma_buf;       // ok, or why its memory cannot be exported as a dma-buf
  Status peer_mapping;  // ok, or why other devices cannot access it through nvidia-peermem
  GpuWrites writes = GpuWrites::kOrdered;
};

struct GpuAllocation {
  int device = 0;
  std::byte* base = nullptr;
  std::size_t size = 0;
};

// A descriptor by which drivers of other devices import a range of GPU memory. The memory stays
// exported as long as a driver has imported it, even if the descriptor is closed.
struct DmaBuf {
  Fd fd;
  std::uint64_t offset = 0;  // of the range within the memory of the descriptor
};

// Copies in order, independently of all other work of the device. One thread. The driver must
// outlive it.
class GpuStream {
 public:
  virtual ~GpuStream() = default;
  // Start a copy and return. Source and destination must stay valid until poll() returns ok.
  virtual Status copy_to_host(void* to, const void* from, std::size_t size) = 0;
  virtual Status copy_to_device(void* to, const void* from, std::size_t size) = 0;
  // Busy while copies are in progress; ok when all are complete; or the error of one of them.
  virtual Status poll() = 0;
};

class GpuDriver {
 public:
  virtual ~GpuDriver() = default;

  // All devices by number. Does not initialize them.
  virtual const std::vector<GpuDevice>& devices() const = 0;
  // The GPU allocation that contains the address; nothing for host memory. kUnavailable for managed
  // memory, which moves between host and device.
  virtual Result<std::optional<GpuAllocation>> find(const void* address) = 0;

  virtual Result<std::byte*> allocate(int device, std::size_t size) = 0;
  virtual void free(int device, std::byte* data) noexcept = 0;

  virtual Result<std::unique_ptr<GpuStream>> create_stream(int device) = 0;

  // Must be called before another device accesses the memory. From then on, synchronous operations
  // of the application on this memory are complete when they return; otherwise CUDA may still carry
  // some of them out.
  virtual Status synchronize_operations(int device, std::byte* data) = 0;
  // Exports the pages that contain [data, data + size).
  virtual Result<DmaBuf> export_dma_buf(int device, std::byte* data, std::size_t size) = 0;
  // When it returns, kernels see the data that other devices have written before the call.
  virtual Status flush_writes(int device) = 0;
};

// Waits until the stream's copies are complete. kDeadlineExceeded when `clock` reaches `deadline`
// first. `what` names the copies in the error.
Status await(GpuStream& stream, const Clock& clock, TimePoint deadline, std::string_view what);

}  // namespace dunlin
