// FusedLimit: what one GPU can do of an all-reduce among ranks that share it. One kernel reads the
// inputs of all ranks once and writes all their outputs once, which are the inputs if the subject
// is in place. It is timed in two ways:
//   whole:    rank 0 runs the kernel on all elements.
//   in turns: every rank runs the kernel on its share of the elements, all at the same time. The
//             GPU has to switch between the ranks' contexts, unless they have it together (MPS).
// Owner thread only.
#pragma once

#include <memory>
#include <vector>

#include "collectives/kernels/gpu/gpu_kernels.h"
#include "runtime/memory/region.h"
#include "tools/dunlin-perf/benchmarks/collective.h"

namespace dunlin::perf {

class FusedLimit {
 public:
  // Returns null on all ranks if the subject is no all-reduce on one GPU, or if the GPU has too
  // little memory for the inputs and outputs of all ranks twice more. Collective.
  static Result<std::unique_ptr<FusedLimit>> create(Job& job, const Options& options,
                                                    Subject& subject);

  // These return when the kernel has ended, for the subject's call.
  Status whole(const collective::Call& call) { return run(call, call.count); }
  Status share(const collective::Call& call) {
    return run(call, (call.count + ranks_ - 1) / ranks_);
  }

 private:
  FusedLimit(Job& job, std::size_t ranks) : job_(job), ranks_(ranks) {}
  Status open(const Options& options, const Subject& subject);
  Status run(const collective::Call& call, std::size_t count);

  Job& job_;
  std::size_t ranks_;
  std::unique_ptr<collective::GpuKernels> kernels_;
  std::unique_ptr<GpuStream> stream_;
  std::shared_ptr<MemoryRegion> memory_;
  std::vector<const std::byte*> inputs_;
  std::vector<std::byte*> targets_;
};

}  // namespace dunlin::perf
