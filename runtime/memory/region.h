// MemoryRegion: contiguous memory that transports can register. Other processes of the host can map
// a region that Dunlin allocated in host memory.
//
// Such a region is a memfd or a part of one. It is shared by passing its descriptor, so that no
// name in /dev/shm can be left behind, and the kernel frees it when its last user ends, however
// that user ends. Its pages are zeroed, and the allocating thread reserves them, unless it is told
// not to. They are local to the thread's NUMA node; in a build without hwloc, a page that is made
// at its first use is local to the thread that uses it. Regions of 2 MiB and more use huge pages if
// the kernel has free ones.
//
// A region of GPU memory (kCuda) knows its driver and device. The host must not dereference its
// addresses: only the driver, the device and the network devices that it is registered with use
// them. A transport that cannot access GPU memory says so.
//
// Regions are held by shared_ptr: a transport that has exposed a region to peers keeps the pages
// until no peer can write to them any more, even if the owner has released the region.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/memory/shared_file.h"
#include "runtime/status.h"

namespace dunlin {

class GpuDriver;

// The location of the bytes. Each transport states which kinds it can register.
enum class MemoryKind : std::uint8_t { kHost, kCuda };
const char* to_string(MemoryKind kind);

// The order in which the accesses of a network device to a region take effect in memory.
enum class DeviceOrder : std::uint8_t {
  // The accesses take effect in the order in which the device carries them out. Words that atomics
  // change need this, and so do bytes that are read while a device may write them, such as bytes
  // between two copies of a version number.
  kStrict,
  // The accesses take effect in any order, which is faster on some hosts (PCIe's relaxed ordering).
  // This suffices for data that is read only after a notification has announced it, because
  // notifications keep their order.
  kRelaxed,
};

// When the pages of a shared region are made.
enum class Pages : std::uint8_t {
  // When the region is allocated. If the host has not enough memory, that is an error then.
  kReserved,
  // At their first use, for memory that most programs use little of. If the host has no memory left
  // then, the process is killed. Huge pages are reserved all the same, where there are any, and a
  // network device that the region is registered with makes all pages.
  kOnUse,
  // At their first use, and never huge pages.
  kSparse,
};

class MemoryRegion {
 public:
  struct Options {
    bool huge_pages = true;
    // NUMA node to bind to; -1: the node of the calling thread.
    int numa_node = -1;
    DeviceOrder device_order = DeviceOrder::kStrict;
    const char* name = "dunlin";  // shown in /proc/PID/maps
    // Other processes cannot map the region, and it needs no descriptor.
    bool is_private = false;
    // Private regions reserve their pages always.
    Pages pages = Pages::kReserved;
    // Where to get the memory from; null: from a memfd of its own. Huge pages always have one.
    SharedFilePool* pool = nullptr;
  };

  // Allocates `size` bytes of zeroed host memory, rounded up to whole pages.
  static Result<std::shared_ptr<MemoryRegion>> allocate(std::size_t size, const Options& options);
  static Result<std::shared_ptr<MemoryRegion>> allocate(std::size_t size) {
    return allocate(size, Options{});
  }
  // Maps the `size` bytes at `offset` of a memfd, a region that another process allocated.
  // kCorrupted when it has fewer bytes.
  static Result<std::shared_ptr<MemoryRegion>> map(Fd file, std::size_t size,
                                                   std::size_t offset = 0);
  // Wraps the caller's host memory, which must outlive the region. Other processes cannot map it.
  static Result<std::shared_ptr<MemoryRegion>> wrap(void* data, std::size_t size);
  // Wraps host memory or GPU memory; the driver tells which it is. kOutOfRange when the bytes do
  // not all belong to the host or to one device.
  static Result<std::shared_ptr<MemoryRegion>> wrap(void* data, std::size_t size,
                                                    std::shared_ptr<GpuDriver> driver);
  // Allocates `size` bytes of the device's memory, which are not zeroed.
  static Result<std::shared_ptr<MemoryRegion>> allocate_on_gpu(std::shared_ptr<GpuDriver> driver,
                                                               int device, std::size_t size);

  ~MemoryRegion();
  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;

  // The address of GPU memory is one that only its driver can use.
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }
  // Sets bytes of host memory to zero. Pages of a shared region that lie within them go back to the
  // kernel until they are used again. Does nothing in a process that was forked from the one that
  // allocated the region, which they belong to.
  void clear(std::size_t offset, std::size_t size);
  MemoryKind kind() const { return gpu_ ? MemoryKind::kCuda : MemoryKind::kHost; }
  // Null for host memory.
  GpuDriver* gpu() const { return gpu_.get(); }
  int gpu_device() const { return gpu_device_; }
  // The descriptor that other processes can map, and where in it the region begins; -1: none.
  int fd() const { return range_.file ? range_.file->fd() : -1; }
  std::size_t fd_offset() const { return range_.offset; }
  std::size_t page_size() const { return page_size_; }
  // kStrict for all memory but what was allocated otherwise.
  DeviceOrder device_order() const { return device_order_; }
  // False for wrapped memory, which its owner frees after the region has been destroyed.
  bool is_owned() const { return page_size_ != 0; }

 private:
  MemoryRegion(std::byte* data, std::size_t size, std::size_t page_size)
      : data_(data), size_(size), page_size_(page_size) {}
  static Result<std::shared_ptr<MemoryRegion>> allocate_private(std::size_t size, bool wants_huge,
                                                                const Options& options);
  static Result<std::shared_ptr<MemoryRegion>> allocate_file(std::size_t size,
                                                             std::size_t page_size, unsigned flags,
                                                             const Options& options);
  static Result<std::shared_ptr<MemoryRegion>> allocate_range(FileRange range,
                                                              std::size_t page_size,
                                                              const Options& options);

  std::byte* data_;
  std::size_t size_;
  std::size_t page_size_;  // 0: wrapped memory, which is not freed
  FileRange range_;
  std::shared_ptr<GpuDriver> gpu_;
  int gpu_device_ = 0;
  DeviceOrder device_order_ = DeviceOrder::kStrict;
};

}  // namespace dunlin
