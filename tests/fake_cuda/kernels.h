// The kernels of collectives/kernels/gpu, built for the host.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "runtime/gpu/cuda_interface.h"
#include "tests/fake_cuda/memory.h"

namespace dunlin::testing {

struct FakeKernel;

// Null if there is no kernel of this name.
const FakeKernel* find_kernel(std::string_view name);

// Copies the argument of a launch, replaces its addresses by those that the CPU can use, and sets
// `run` to a function that runs the kernel. Returns the error that a GPU would find when it runs
// the kernel: kIllegalAddress if it would leave an allocation, kMisaligned if a vector is not
// aligned.
cuda::Code prepare_kernel(const FakeKernel& kernel, FakeMemory& memory, const void* argument,
                          std::uint64_t threads, std::function<void()>* run);

inline constexpr cuda::Code kIllegalAddress = 700;
inline constexpr cuda::Code kMisaligned = 716;

}  // namespace dunlin::testing
