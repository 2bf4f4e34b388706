// Memory: the windows of one rank. A window is memory that peers can reach, and have mapped on the
// same host. Each rank allocates on its own. A peer learns the number of a window in the operation
// that uses it, and looks the rest up at the bootstrap, once. Owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/gpu/driver.h"
#include "transports/fabric.h"

namespace dunlin::collective::partial {

struct OwnWindow {
  std::uint32_t id = 0;
  std::unique_ptr<transport::LocalRegion> region;
  std::size_t size = 0;      // in bytes, as requested
  std::size_t capacity = 0;  // in bytes
  std::size_t base = 0;      // its offset in the region
  int holds = 0;             // how many failed operations may still access it
  bool is_freed = false;

  std::byte* data() const { return region->data() + base; }
};

class Memory {
 public:
  Memory(transport::Fabric& fabric, std::string name) : fabric_(fabric), name_(std::move(name)) {}

  // From now on, windows are memory of this device.
  void use_gpu(std::shared_ptr<GpuDriver> driver, int device) {
    gpu_ = std::move(driver);
    device_ = device;
  }
  bool is_on_gpu() const { return gpu_ != nullptr; }

  // The offset of a rank's windows in their regions. It differs from rank to rank within a page
  // (communicator/window.h says why).
  static std::size_t base(Rank rank);
  // Returns a zeroed window: an idle one, or a new one, which is published. The contents of GPU
  // memory are undefined.
  Result<OwnWindow*> allocate(std::size_t size) { return allocate(size, &Bootstrap::publish); }
  // The same without waiting for the coordinator, so that a chore of the bootstrap may call it.
  Result<OwnWindow*> allocate_at_once(std::size_t size) { return allocate(size, &Bootstrap::post); }
  // kInvalidArgument for memory that is not the beginning of a window.
  Status free(const void* data);
  // Keeps a window, although it may be freed, until release() was called as often. Then it is idle
  // if it is freed: peers have it mapped, so it is used again.
  void hold(OwnWindow& window) { ++window.holds; }
  void release(OwnWindow& window);
  // Frees a window that is held.
  void free_later(OwnWindow& window) { window.is_freed = true; }
  // The window that contains [data, data + size), or null.
  OwnWindow* find(const void* data, std::size_t size) const;
  // Imports a window of a peer, which has to be published.
  Result<std::unique_ptr<transport::RemoteRegion>> import(Rank peer, std::uint32_t id);

  // The address of a peer's window for this rank's reductions; null if they cannot access it.
  std::byte* mapped(const transport::RemoteRegion& region) const {
    return gpu_ == nullptr ? region.mapped() : region.gpu_mapped(device_);
  }
  // Copies between windows, and returns when that is done.
  Status copy(std::byte* to, const std::byte* from, std::size_t size) const;

  std::size_t count() const { return windows_.size(); }  // all that exist

 private:
  // How many windows of any size may be idle, besides the first one, which peers import when they
  // meet this rank. GroupAverage uses three at a time: scratch, model and result.
  static constexpr std::size_t kMostIdle = 6;

  using Publish = Status (Bootstrap::*)(std::string_view, std::span<const std::byte>);
  Result<OwnWindow*> allocate(std::size_t size, Publish publish);
  static bool is_idle(const OwnWindow& window) { return window.is_freed && window.holds == 0; }
  std::string key(Rank rank, std::uint32_t id) const;

  transport::Fabric& fabric_;
  std::string name_;
  std::shared_ptr<GpuDriver> gpu_;  // null: host memory
  int device_ = 0;
  std::vector<std::unique_ptr<OwnWindow>> windows_;
  std::uint32_t next_id_ = 0;
};

}  // namespace dunlin::collective::partial
