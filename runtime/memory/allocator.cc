#include "runtime/memory/allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace dunlin {

BufferAllocator::BufferAllocator(std::shared_ptr<MemoryRegion> region)
    : region_(std::move(region)) {
  free_.emplace(0, region_->size());
}

Result<std::size_t> BufferAllocator::allocate(std::size_t size, std::size_t alignment) {
  if (!std::has_single_bit(alignment)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("alignment {} is not a power of two", alignment));
  }
  alignment = std::max(alignment, kAlignment);
  for (auto block = free_.begin(); size <= region_->size() && block != free_.end(); ++block) {
    const auto [start, available] = *block;
    const std::size_t offset = (start + alignment - 1) & ~(alignment - 1);
    const std::size_t rounded = std::max((size + kAlignment - 1) & ~(kAlignment - 1), kAlignment);
    const std::size_t skipped = offset - start;
    if (skipped > available || rounded > available - skipped) continue;
    free_.erase(block);
    if (skipped > 0) free_.emplace(start, skipped);
    if (const std::size_t rest = available - skipped - rounded; rest > 0)
      free_.emplace(offset + rounded, rest);
    used_.emplace(offset, rounded);
    return offset;
  }
  return Status(
      Code::kResourceExhausted,
      fmt::format("no block of {} bytes aligned to {}: {} of {} bytes free, largest block {}", size,
                  alignment, free_bytes(), region_->size(), largest_free_block()));
}

Status BufferAllocator::free(std::size_t offset) {
  const auto used = used_.find(offset);
  if (used == used_.end()) {
    return {Code::kInvalidArgument, fmt::format("offset {} is not allocated", offset)};
  }
  auto block = free_.emplace(offset, used->second).first;
  used_.erase(used);
  if (const auto next = std::next(block);
      next != free_.end() && block->first + block->second == next->first) {
    block->second += next->second;
    free_.erase(next);
  }
  if (block != free_.begin()) {
    if (const auto previous = std::prev(block);
        previous->first + previous->second == block->first) {
      previous->second += block->second;
      free_.erase(block);
    }
  }
  return Status::ok();
}

std::size_t BufferAllocator::free_bytes() const {
  std::size_t total = 0;
  for (const auto& [offset, size] : free_) total += size;
  return total;
}

std::size_t BufferAllocator::largest_free_block() const {
  std::size_t largest = 0;
  for (const auto& [offset, size] : free_) largest = std::max(largest, size);
  return largest;
}

}  // namespace dunlin
