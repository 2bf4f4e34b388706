// GpuDriver: what Dunlin asks of the driver of the GPUs: who owns an address, memory, copies, and
// what a network device needs in order to reach that memory by itself.
//
// load_cuda_driver() (cuda_driver.h) makes the one over CUDA; tests have one without a GPU. What a
// driver, a kernel or a device lacks is a Status with its reason, so that callers can choose
// another way. Shared: regions of GPU memory keep their driver. Any thread, but a GpuStream belongs
// to one.
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

// Whether kernels of a GPU see what another device has written to its memory, once that device says
// that it is written (CUDA: GPUDirect RDMA writes ordering).
enum class GpuWrites : std::uint8_t {
  kOrdered,    // they do
  kNeedFlush,  // after GpuDriver::flush_writes()
  kUnordered,  // and the driver has no such flush: no direct writes
};

struct GpuDevice {
  int number = 0;
  std::string name;
  std::string pci_bus_id;  // "0000:3b:00.0", as in /sys/bus/pci/devices; empty: not known
  std::size_t memory_bytes = 0;
  int compute_major = 0;  // compute capability
  int compute_minor = 0;
  Status dma_buf;       // why its memory can't be exported, or ok
  Status peer_mapping;  // why other devices can't reach it through nvidia-peermem, or ok
  GpuWrites writes = GpuWrites::kOrdered;
};

struct GpuAllocation {
  int device = 0;
  std::byte* base = nullptr;
  std::size_t size = 0;
};

// A range of GPU memory as a descriptor that drivers of other devices import. The memory stays
// exported as long as somebody has imported it, whether or not the descriptor is closed.
struct DmaBuf {
  Fd fd;
  std::uint64_t offset = 0;  // of the range within what the descriptor stands for
};

// Copies in order, beside all other work of the device. One thread; the driver outlives it.
class GpuStream {
 public:
  virtual ~GpuStream() = default;
  // Begin, and return; both ends have to stay until the stream is idle.
  virtual Status copy_to_host(void* to, const void* from, std::size_t size) = 0;
  virtual Status copy_to_device(void* to, const void* from, std::size_t size) = 0;
  // Busy while a copy is under way; an error of one of them.
  virtual Status poll() = 0;
};

class GpuDriver {
 public:
  virtual ~GpuDriver() = default;

  // By number; without waking the devices up.
  virtual const std::vector<GpuDevice>& devices() const = 0;
  // What the address belongs to; nothing: the host's memory. kUnavailable for managed memory, which
  // wanders between the two.
  virtual Result<std::optional<GpuAllocation>> find(const void* address) = 0;

  virtual Result<std::byte*> allocate(int device, std::size_t size) = 0;
  virtual void free(int device, std::byte* data) noexcept = 0;

  virtual Result<std::unique_ptr<GpuStream>> create_stream(int device) = 0;

  // To be asked for before another device gets to the memory: synchronous operations of the
  // application on it are complete when they return (CUDA leaves some of them under way).
  virtual Status synchronize_operations(int device, std::byte* data) = 0;
  // The pages around [data, data + size).
  virtual Result<DmaBuf> export_dma_buf(int device, std::byte* data, std::size_t size) = 0;
  // Kernels that start, or look, after its return see what other devices have written before.
  virtual Status flush_writes(int device) = 0;
};

// Waits for the stream's copies, which are `what`, until `clock` says `deadline`.
Status await(GpuStream& stream, const Clock& clock, TimePoint deadline, std::string_view what);

}  // namespace dunlin
