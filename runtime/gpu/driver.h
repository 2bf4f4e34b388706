// GpuDriver: the functions of a GPU driver that Dunlin needs. It finds the device of an address,
// allocates memory, copies, runs kernels, lets other processes of the host open GPU memory, and
// gives network devices direct access to it.
//
// load_cuda_driver() (cuda_driver.h) makes a GpuDriver over CUDA; tests have one without a GPU.
// When the driver, the kernel or the device lacks a feature, a Status gives the reason, so that the
// caller can choose another way. An object that needs a driver for long holds a shared_ptr to it.
// Any thread may use a GpuDriver or a GpuModule; only one thread at a time may use a GpuStream or a
// GpuEvent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
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
  int processors = 0;   // streaming multiprocessors
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

// Describes an allocation that another process of the same host can open. The structure can be sent
// as plain bytes. `process` and `buffer` together identify the allocation: no other one has them,
// not even a later one at the same address.
struct SharedGpuMemory {
  std::array<char, 16> pci_bus_id{};  // of the device
  std::uint64_t process = 0;          // a random number that identifies the owner
  std::uint64_t buffer = 0;
  std::uint64_t address = 0;  // in the owner's process
  std::uint64_t size = 0;
  std::array<std::byte, 64> handle{};
  bool operator==(const SharedGpuMemory&) const = default;
};
static_assert(std::has_unique_object_representations_v<SharedGpuMemory>);

// A stream of the application, in the type of the driver's own interface (CUDA: CUstream, which is
// also cudaStream_t). Null is the default stream of the current device.
using NativeGpuStream = void*;

// A kernel of a GpuModule.
struct GpuFunction {
  void* handle = nullptr;
  bool is_found() const { return handle != nullptr; }
};

// How many threads run a kernel: `blocks` times `threads`.
struct GpuGrid {
  unsigned blocks = 1;
  unsigned threads = 1;
};

// A point in the work of a stream. One thread. The driver must outlive the event.
class GpuEvent {
 public:
  virtual ~GpuEvent() = default;
  // Moves the event to the stream's end now. kInvalidArgument if a graph is captured from it.
  virtual Status record(NativeGpuStream stream) = 0;
  // Makes the work that `stream` gets from now on wait until the work before the event is complete.
  // The call itself does not wait. Before the first record() it has no effect.
  virtual Status delay(NativeGpuStream stream) = 0;
  // Returns busy while the work before the event is in progress, and ok when it is complete. Before
  // the first record() it returns ok.
  virtual Status poll() = 0;
};

// Carries out copies and kernels in the order in which they were started, independently of all
// other streams. One thread. The driver must outlive the stream. Work that was started goes on
// after the stream has been destroyed.
class GpuStream {
 public:
  virtual ~GpuStream() = default;
  // Start a copy and return. Source and destination must stay valid until poll() returns ok.
  virtual Status copy_to_host(void* to, const void* from, std::size_t size) = 0;
  virtual Status copy_to_device(void* to, const void* from, std::size_t size) = 0;
  // Both ends are GPU memory that this process has allocated or opened.
  virtual Status copy_on_device(void* to, const void* from, std::size_t size) = 0;
  // Starts a kernel that has one parameter. The parameter is copied from `argument` before the call
  // returns.
  virtual Status launch(GpuFunction kernel, GpuGrid grid, const void* argument) = 0;
  // Returns busy while work is in progress, ok when all work is complete, and an error if some of
  // it has failed.
  virtual Status poll() = 0;
  virtual NativeGpuStream native() const = 0;
};

// Kernels that are loaded on a device. Their GpuFunctions are valid as long as the module exists.
// Any thread. The driver must outlive the module.
class GpuModule {
 public:
  virtual ~GpuModule() = default;
  // Returns kNotFound if the module has no kernel of this name.
  virtual Result<GpuFunction> find(const char* name) = 0;
};

class GpuDriver : public std::enable_shared_from_this<GpuDriver> {
 public:
  virtual ~GpuDriver() = default;

  // All devices, in the order of their numbers. The call does not initialize them.
  virtual const std::vector<GpuDevice>& devices() const = 0;
  // Returns the GPU allocation that contains the address, or nothing for host memory. Returns
  // kUnavailable for managed memory, which moves between host and device.
  virtual Result<std::optional<GpuAllocation>> find(const void* address) = 0;

  virtual Result<std::byte*> allocate(int device, std::size_t size) = 0;
  virtual void free(int device, std::byte* data) noexcept = 0;

  virtual Result<std::unique_ptr<GpuStream>> create_stream(int device) = 0;
  virtual Result<std::unique_ptr<GpuEvent>> create_event(int device) = 0;
  // Loads what the compiler has made (CUDA: a fatbin). Returns kUnavailable if `image` has no code
  // for this device.
  virtual Result<std::unique_ptr<GpuModule>> load_module(int device, const void* image) = 0;

  // Lets streams copy from and to this host memory in the background. Calls that start a copy of
  // other host memory may wait for the work of the stream. Call unpin() before the memory is
  // unmapped.
  virtual Status pin(int device, std::span<std::byte> memory) = 0;
  virtual void unpin(int device, std::byte* data) noexcept = 0;

  // Lets other processes open the allocation that begins at `base`, until it is freed. Returns
  // kUnavailable for memory that CUDA cannot share, which is memory of other kinds than allocate()
  // returns.
  virtual Result<SharedGpuMemory> share(int device, std::byte* base) = 0;
  // Maps memory of another process, so that work of `device` can access it. Returns the same
  // address again for memory that is open already, and the owner's address for memory of this
  // process. Call close() once for each open(), and before the owner frees the memory: CUDA does
  // not define what happens otherwise. Returns kNotFound if the owner has ended or has freed the
  // memory.
  virtual Result<std::byte*> open(int device, const SharedGpuMemory& memory) = 0;
  // Ends one open(). Work of `device` must not access the memory after the last close(). Returns
  // false if the driver has failed: then the memory stays open until this process ends.
  virtual bool close(int device, const SharedGpuMemory& memory) noexcept = 0;

  // Must be called before another device accesses the memory. From then on, synchronous operations
  // of the application on this memory are complete when they return; otherwise CUDA may still carry
  // some of them out. For memory of cuMemCreate(), that holds in the primary context only, which
  // the CUDA runtime uses.
  virtual Status synchronize_operations(int device, std::byte* data) = 0;
  // Exports the pages that contain [data, data + size).
  virtual Result<DmaBuf> export_dma_buf(int device, std::byte* data, std::size_t size) = 0;
  // When it returns, kernels see the data that other devices have written before the call.
  virtual Status flush_writes(int device) = 0;
};

// Waits until the stream's copies are complete. kDeadlineExceeded when `clock` reaches `deadline`
// first. `what` names the copies in the error.
Status await(GpuStream& stream, const Clock& clock, TimePoint deadline, std::string_view what);
// The same for a copy from or to host memory that the caller may free afterwards. `started`: what
// the call that starts the copy returned. After an error it waits once more, as the copy may still
// be in progress.
Status await_copy(GpuStream& stream, Status started, const Clock& clock, TimePoint deadline,
                  std::string_view what);

}  // namespace dunlin
