// The kernels of collectives/kernels/gpu, built for the host.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "runtime/gpu/cuda_interface.h"
#include "tests/fake_cuda/memory.h"

namespace dunlin::testing {

struct FakeKernel;

// Null if there is none of this name.
const FakeKernel* find_kernel(std::string_view name);

// Copies the argument of a launch, with addresses that the CPU can use, and gives what runs the
// kernel. Checks what a GPU would find when it runs: kIllegalAddress where the kernel would leave
// an allocation, kMisaligned where a vector is not aligned.
cuda::Code prepare_kernel(const FakeKernel& kernel, FakeMemory& memory, const void* argument,
                          std::uint64_t threads, std::function<void()>* run);

inline constexpr cuda::Code kIllegalAddress = 700;
inline constexpr cuda::Code kMisaligned = 716;

}  // namespace dunlin::testing
