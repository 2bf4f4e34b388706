// Window: memory of the same size on every member of a communicator, whose address all members
// know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/bootstrap/topic_values.h"
#include "runtime/gpu/driver.h"
#include "transports/fabric.h"

namespace dunlin::collective {

// Members begin at different offsets within a page. Streams whose addresses differ by whole pages
// slow one another down, most of all with streaming stores (bench/peers/all_reduce_limit).
inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kStagger = 2112;  // an odd number of cache lines

// True if [data, data + size) lies within the `length` bytes from `begin`.
inline bool holds(const std::byte* begin, std::size_t length, const void* data, std::size_t size) {
  const auto* const at = static_cast<const std::byte*>(data);
  return at >= begin && at <= begin + length &&
         size <= length - static_cast<std::size_t>(at - begin);
}

struct Window {
  std::uint32_t id = 0;
  std::unique_ptr<transport::LocalRegion> memory;
  std::size_t size = 0;  // in bytes, as requested
  int rank = 0;          // of this member
  // Offset of a member's memory in its region.
  static std::size_t base(int member) {
    return static_cast<std::size_t>(member) * kStagger % kPage;
  }
  std::byte* data() const { return memory->data() + base(rank); }
  // The address of a member's region for this member's reductions; null if they cannot access it.
  std::byte* mapped(int member) const {
    const transport::RemoteRegion& region = *remote[static_cast<std::size_t>(member)];
    const MemoryRegion& own = *memory->memory();
    return own.kind() == MemoryKind::kHost ? region.mapped() : region.gpu_mapped(own.gpu_device());
  }
  std::vector<std::unique_ptr<transport::RemoteRegion>> remote;  // by member; null: not imported
  // What the members have published of it. Keeps what has been fetched, but not imported yet.
  std::optional<bootstrap::TopicValues> offers;
};

// The windows of one communicator. All members allocate them in the same order. Owner thread only.
class Windows {
 public:
  Windows(transport::Fabric& fabric, std::string name, std::vector<Rank> members)
      : fabric_(fabric), name_(std::move(name)), members_(std::move(members)) {}
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  // From now on, windows are memory of this device.
  void use_gpu(std::shared_ptr<GpuDriver> driver, int device) {
    gpu_ = std::move(driver);
    device_ = device;
  }
  // Allocates memory and publishes its address. `pages`: of host memory (runtime/memory/region.h).
  Result<Window*> allocate(std::size_t size, Pages pages = Pages::kReserved);
  // Collective: once all members have freed a window, the bootstrap forgets its addresses. Returns
  // kInvalidArgument if no window begins at `data`.
  Status free(const void* data);
  // The window that holds [data, data + size). Null: there is none.
  Window* find(const void* data, std::size_t size) const;
  // Grows whenever the results of find() may have changed.
  std::uint64_t version() const { return version_; }
  // Imports a member's memory of the window, once. Blocks until that member has published it and is
  // connected, at most for `timeout`.
  Status import(Window& window, int member, Duration timeout);
  // The same for several members. Those that are imported before an error stay so.
  Status import(Window& window, std::span<const int> members, Duration timeout);
  // Looks up at once what import() needs of these members, and so spares it round trips. Blocks
  // until they have published it, at most for `timeout`.
  Status fetch(Window& window, std::span<const int> members, Duration timeout);

 private:
  Rank peer(int member) const { return members_[static_cast<std::size_t>(member)]; }
  // An error of a lookup of addresses.
  Status explain(Status error) const;
  void release(const Window& window);
  Result<std::unique_ptr<transport::LocalRegion>> allocate_region(std::size_t size, Pages pages);

  transport::Fabric& fabric_;
  std::string name_;
  std::vector<Rank> members_;
  std::shared_ptr<GpuDriver> gpu_;  // null: host memory
  int device_ = 0;
  std::vector<std::unique_ptr<Window>> windows_;
  std::uint32_t next_id_ = 0;
  std::uint64_t version_ = 1;
};

}  // namespace dunlin::collective
