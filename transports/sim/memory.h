// The memory of a simulated network: the table of regions that its ranks have registered, and
// phantom memory: addresses without bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/memory/region.h"
#include "runtime/status.h"
#include "transports/sim/operation.h"

namespace dunlin::transport::sim {

// All regions of all ranks, by number. A put to a region that was deregistered since fails, and
// never reaches memory that has been reused.
class RegionTable {
 public:
  RegionId add(std::shared_ptr<MemoryRegion> memory);
  void remove(RegionId id);
  // The address of `size` bytes at `offset` of the region. Null if the region is not registered
  // (any more) or is too small.
  std::byte* find(RegionId id, std::size_t offset, std::size_t size) const;
  // The memory of a region that is registered.
  const std::shared_ptr<MemoryRegion>& memory(RegionId id) const {
    return entries_[id.number].memory;
  }

 private:
  struct Entry {
    std::shared_ptr<MemoryRegion> memory;
    std::uint32_t generation = 0;  // 0: free
  };
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> free_;
  std::uint32_t next_generation_ = 1;
};

// One reservation of address space without access, so that a buffer of any size costs no memory.
// Lanes do not move its bytes, and accessing them raises SIGSEGV. Addresses are not reused.
class PhantomSpace {
 public:
  PhantomSpace() = default;
  ~PhantomSpace();
  PhantomSpace(const PhantomSpace&) = delete;
  PhantomSpace& operator=(const PhantomSpace&) = delete;

  Result<std::shared_ptr<MemoryRegion>> allocate(std::size_t size);
  bool contains(const std::byte* address) const {
    return address >= begin_ && address < begin_ + size_;
  }

 private:
  Status reserve();

  std::byte* begin_ = nullptr;  // reserved on first use
  std::size_t size_ = 0;
  std::size_t used_ = 0;
};

}  // namespace dunlin::transport::sim
