// CopyTarget: what puts and gets are measured beside: memcpy of the same size, between memory of
// the same kind.
#pragma once

#include <cstring>
#include <memory>

#include "tools/dunlin-perf/job.h"

namespace dunlin::perf {

class CopyTarget {
 public:
  // For copies of up to `bytes`.
  static Result<CopyTarget> create(Job& job, std::size_t bytes) {
    MemoryRegion::Options kind;
    kind.huge_pages = job.config().huge_pages;
    DUNLIN_ASSIGN(auto memory, MemoryRegion::allocate(bytes + kLeast, kind));
    return CopyTarget(std::move(memory));
  }

  // Timers take it for an operation.
  Status copy(const transport::LocalSlice& from) {
    std::memcpy(memory_->data(), from.data(), from.size());
    asm volatile("" ::: "memory");  // each copy counts
    return Status::ok();
  }

 private:
  static constexpr std::size_t kLeast = 64;  // there are copies of nothing, but no such memory

  explicit CopyTarget(std::shared_ptr<MemoryRegion> memory) : memory_(std::move(memory)) {}
  std::shared_ptr<MemoryRegion> memory_;
};

}  // namespace dunlin::perf
