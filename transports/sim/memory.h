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

// All regions of all ranks, by number. What is put into one that was unregistered meanwhile fails,
// and never reaches memory that is used otherwise.
class RegionTable {
 public:
  RegionId add(const MemoryRegion& memory);
  void remove(RegionId id);
  // Where `size` bytes at `offset` of the region are; null when it is not registered (any more) or
  // not as large.
  std::byte* find(RegionId id, std::size_t offset, std::size_t size) const;

 private:
  struct Entry {
    std::byte* data = nullptr;
    std::size_t size = 0;
    std::uint32_t generation = 0;  // 0: free
  };
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> free_;
  std::uint32_t next_generation_ = 1;
};

// One reservation of address space without access, so that a buffer of any size costs nothing:
// lanes move none of its bytes, and whoever touches it ends with SIGSEGV. Never handed out twice.
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
