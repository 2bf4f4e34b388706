// BufferAllocator allocates user buffers from one MemoryRegion, which transports have registered.
// So every transport can read and write the buffers without copying or registering them.
//
// It is a first-fit allocator with coalescing. Blocks are aligned to cache lines (or more) and
// never move. Its own data are outside the region, where no peer can overwrite them. Owner thread
// only.
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

  // Returns the offset of `size` bytes within the region. It is a multiple of `alignment`, which
  // must be a power of two. Blocks of size 0 are legal and have distinct offsets.
  // kResourceExhausted names the free bytes and the largest free block.
  Result<std::size_t> allocate(std::size_t size, std::size_t alignment = kAlignment);
  // kInvalidArgument when the offset is not allocated.
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
