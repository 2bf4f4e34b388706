#include "transports/sim/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "transports/notification.h"
#include "transports/sim/constants.h"

namespace dunlin::transport::sim {

RegionId RegionTable::add(std::shared_ptr<MemoryRegion> memory) {
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(entries_.size()));
    entries_.emplace_back();
  }
  const std::uint32_t number = free_.back();
  free_.pop_back();
  const std::uint32_t generation = next_generation_;
  if (++next_generation_ == 0) next_generation_ = 1;
  entries_[number] = {std::move(memory), generation};
  return {number, generation};
}

void RegionTable::remove(RegionId id) {
  entries_[id.number] = Entry();
  free_.push_back(id.number);
}

std::byte* RegionTable::find(RegionId id, std::size_t offset, std::size_t size) const {
  if (id.generation == 0 || id.number >= entries_.size()) return nullptr;
  const Entry& entry = entries_[id.number];
  if (entry.generation != id.generation) return nullptr;
  const std::size_t whole = entry.memory->size();
  if (offset > whole || size > whole - offset) return nullptr;
  return entry.memory->data() + offset;
}

PhantomSpace::~PhantomSpace() {
  if (begin_ != nullptr) munmap(begin_, size_);
}

Status PhantomSpace::reserve() {
  for (std::size_t size = kMostPhantom; size >= kLeastPhantom; size /= 2) {
    void* const begin =
        mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) continue;
    begin_ = static_cast<std::byte*>(begin);
    size_ = size;
    return Status::ok();
  }
  return Status::from_errno("reserving addresses for phantom memory", errno);
}

Result<std::shared_ptr<MemoryRegion>> PhantomSpace::allocate(std::size_t size) {
  if (begin_ == nullptr) DUNLIN_TRY(reserve());
  if (size > size_ - used_) {
    return Status(
        Code::kResourceExhausted,
        fmt::format("{} bytes of phantom memory; {} of {} are left", size, size_ - used_, size_));
  }
  DUNLIN_ASSIGN(auto region, MemoryRegion::wrap(begin_ + used_, size));
  const std::size_t padded = whole_cache_lines(size);
  used_ += std::min(padded, size_ - used_);
  return region;
}

}  // namespace dunlin::transport::sim
