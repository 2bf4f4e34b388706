// BufferAllocator: user buffers out of registered memory.
//
// A first-fit allocator with coalescing over one MemoryRegion; blocks are aligned to cache lines
// (or more) and never move. What comes from here can be the source and the target of every
// transport without copying or registering. Bookkeeping stands outside the region, so that a peer
// that writes beyond its slice can't damage it. Owner thread only.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "runtime/memory/region.h"

namespace dunlin {

class BufferAllocator {
 public:
  static constexpr std::size_t kAlignment = 64;

  explicit BufferAllocator(std::shared_ptr<MemoryRegion> region);

  // Offset of `size` bytes within the region, a multiple of `alignment` (a power of two). Zero-size
  // blocks are legal and distinct. kResourceExhausted says what is free and the largest block.
  Result<std::size_t> allocate(std::size_t size, std::size_t alignment = kAlignment);
  // kInvalidArgument for an offset that isn't allocated.
  Status free(std::size_t offset);

  const std::shared_ptr<MemoryRegion>& region() const { return region_; }
  std::byte* at(std::size_t offset) const { return region_->data() + offset; }
  std::size_t free_bytes() const;
  std::size_t largest_free_block() const;

 private:
  std::shared_ptr<MemoryRegion> region_;
  std::map<std::size_t, std::size_t> free_;  // offset -> size, coalesced
  std::map<std::size_t, std::size_t> used_;
};

}  // namespace dunlin
