// MemoryRegion: a stretch of memory that transports can register and, when Dunlin allocated it on
// the host, that other processes of the host can map.
//
// Allocated regions of the host are memfds: sharing one means handing over a descriptor (there are
// no names in /dev/shm to leak), and the kernel frees it with its last user, however that user
// ends. They are zeroed, page-aligned, and touched by the allocating thread, so that the pages are
// local to its NUMA node. Huge pages are used from 2 MiB on where the kernel has some to give;
// otherwise ordinary ones.
//
// A region of GPU memory (kCuda) knows its driver and device; nobody but these, and the network
// devices that are let in, may follow its addresses. Transports that can't reach it say so.
//
// Regions are shared: a transport that exposed one to peers keeps the pages until no peer can write
// there any more, whatever the owner does; hence shared_ptr.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "runtime/status.h"

namespace dunlin {

class GpuDriver;

// Where the bytes live. Transports say which kinds they can register.
enum class MemoryKind : std::uint8_t { kHost, kCuda };
const char* to_string(MemoryKind kind);

class MemoryRegion {
 public:
  struct Options {
    bool huge_pages = true;
    // NUMA node to bind to; -1: the node of the calling thread.
    int numa_node = -1;
    const char* name = "dunlin";  // shown in /proc/PID/maps
  };

  // `size` bytes or more (rounded up to pages) of zeroed host memory.
  static Result<std::shared_ptr<MemoryRegion>> allocate(std::size_t size, const Options& options);
  static Result<std::shared_ptr<MemoryRegion>> allocate(std::size_t size) {
    return allocate(size, Options{});
  }
  // Maps a region that another process allocated; takes over `fd`. Fails unless it holds `size`
  // bytes.
  static Result<std::shared_ptr<MemoryRegion>> map(int fd, std::size_t size);
  // The caller's own memory, which has to outlive the region. Can't be mapped by others.
  static Result<std::shared_ptr<MemoryRegion>> wrap(void* data, std::size_t size);
  // The same for memory of either kind, which the driver tells. kOutOfRange if it isn't all of one
  // device.
  static Result<std::shared_ptr<MemoryRegion>> wrap(void* data, std::size_t size,
                                                    std::shared_ptr<GpuDriver> driver);
  // `size` bytes of the device's memory, not zeroed.
  static Result<std::shared_ptr<MemoryRegion>> allocate_on_gpu(std::shared_ptr<GpuDriver> driver,
                                                               int device, std::size_t size);

  ~MemoryRegion();
  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;

  // Of GPU memory: an address for its driver.
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }
  MemoryKind kind() const { return gpu_ ? MemoryKind::kCuda : MemoryKind::kHost; }
  // Null for the host's memory.
  GpuDriver* gpu() const { return gpu_.get(); }
  int gpu_device() const { return gpu_device_; }
  // Descriptor that others can map; -1 where there is none.
  int fd() const { return fd_; }
  std::size_t page_size() const { return page_size_; }
  // False: whoever wrapped the memory frees it, at any time after the region is gone.
  bool is_owned() const { return page_size_ != 0; }

 private:
  MemoryRegion(std::byte* data, std::size_t size, int fd, std::size_t page_size)
      : data_(data), size_(size), fd_(fd), page_size_(page_size) {}
  static Result<std::shared_ptr<MemoryRegion>> allocate_pages(std::size_t size,
                                                              std::size_t page_size, unsigned flags,
                                                              const Options& options);
  static Result<std::shared_ptr<MemoryRegion>> map_descriptor(int fd, std::size_t size,
                                                              std::size_t page_size);

  std::byte* data_;
  std::size_t size_;
  int fd_;                 // owned
  std::size_t page_size_;  // 0: wrapped, nothing to give back
  std::shared_ptr<GpuDriver> gpu_;
  int gpu_device_ = 0;
};

}  // namespace dunlin
