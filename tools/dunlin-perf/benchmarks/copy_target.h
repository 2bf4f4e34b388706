// CopyTarget: the memcpy beside which puts and gets are measured. It has the same size and copies
// between memory of the same kind.
#pragma once

#include <cstring>
#include <memory>

#include "tools/dunlin-perf/job/job.h"

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

  // An operation for timers.
  Status copy(const transport::LocalSlice& from) {
    std::memcpy(memory_->data(), from.data(), from.size());
    asm volatile("" ::: "memory");  // keeps the compiler from dropping a copy
    return Status::ok();
  }

 private:
  static constexpr std::size_t kLeast = 64;  // copies may be empty, allocations may not

  explicit CopyTarget(std::shared_ptr<MemoryRegion> memory) : memory_(std::move(memory)) {}
  std::shared_ptr<MemoryRegion> memory_;
};

}  // namespace dunlin::perf
