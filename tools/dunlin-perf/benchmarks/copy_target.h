// CopyTarget: the copy beside which puts and gets are measured. It has the same size and copies
// between memory of the same kind: by memcpy on the host, and by the driver on a GPU.
#pragma once

#include <cstring>
#include <memory>

#include "tools/dunlin-perf/job/job.h"

namespace dunlin::perf {

class CopyTarget {
 public:
  // For copies of up to `bytes`.
  static Result<CopyTarget> create(Job& job, std::size_t bytes) {
    if (job.gpu() != nullptr) {
      DUNLIN_ASSIGN(auto memory,
                    MemoryRegion::allocate_on_gpu(job.gpu()->driver(), job.gpu()->device().number,
                                                  bytes + kLeast));
      return CopyTarget(std::move(memory), job.gpu());
    }
    MemoryRegion::Options kind;
    kind.huge_pages = job.config().huge_pages;
    DUNLIN_ASSIGN(auto memory, MemoryRegion::allocate(bytes + kLeast, kind));
    return CopyTarget(std::move(memory), nullptr);
  }

  // An operation for timers.
  Status copy(const transport::LocalSlice& from) {
    if (gpu_ != nullptr) return gpu_->copy(memory_->data(), from.data(), from.size());
    std::memcpy(memory_->data(), from.data(), from.size());
    asm volatile("" ::: "memory");  // keeps the compiler from dropping a copy
    return Status::ok();
  }

 private:
  static constexpr std::size_t kLeast = 64;  // copies may be empty, allocations may not

  CopyTarget(std::shared_ptr<MemoryRegion> memory, MeasuredGpu* gpu)
      : memory_(std::move(memory)), gpu_(gpu) {}
  std::shared_ptr<MemoryRegion> memory_;
  MeasuredGpu* gpu_;  // null: host memory
};

}  // namespace dunlin::perf
