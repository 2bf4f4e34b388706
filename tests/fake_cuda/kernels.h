// The kernels of collectives/kernels/gpu and apps/cnn/gpu, built for the host.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/gpu/cuda_interface.h"
#include "tests/fake_cuda/memory.h"

namespace dunlin::testing {

// How a launch divides its threads.
struct FakeGrid {
  unsigned blocks;
  unsigned threads;  // of a block
};

struct FakeKernel {
  std::string_view name;
  cuda::Code (*prepare)(FakeMemory& memory, const void* argument, FakeGrid grid,
                        std::function<void()>* run);
};

// The kernels of apps/cnn/gpu.
std::span<const FakeKernel> cnn_kernels();

// Null if there is no kernel of this name.
const FakeKernel* find_kernel(std::string_view name);

// Copies the argument of a launch, replaces its addresses by those that the CPU can use, and sets
// `run` to a function that runs the kernel. Returns the error that a GPU would find when it runs
// the kernel: kIllegalAddress if it would leave an allocation, kMisaligned if a vector is not
// aligned.
inline cuda::Code prepare_kernel(const FakeKernel& kernel, FakeMemory& memory, const void* argument,
                                 FakeGrid grid, std::function<void()>* run) {
  return kernel.prepare(memory, argument, grid, run);
}

inline constexpr cuda::Code kIllegalAddress = 700;
inline constexpr cuda::Code kMisaligned = 716;

}  // namespace dunlin::testing
