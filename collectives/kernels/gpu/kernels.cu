// The kernels, which nvcc compiles. Their names are those of kernel_list.h with "dunlin_" before.
#include "collectives/kernels/gpu/kernel_list.h"

namespace {

__device__ std::uint64_t this_thread() {
  return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ std::uint64_t all_threads() {
  return std::uint64_t{gridDim.x} * blockDim.x;
}

}  // namespace

namespace dunlin::collective::gpu {

#define DUNLIN_DEFINE_REDUCE(name, element, op, is_signed)                                      \
  extern "C" __global__ void dunlin_##name(const __grid_constant__ ReduceArguments arguments) { \
    using Body = ReduceBody<element, op, is_signed>;                                            \
    for_elements<Body::Stored>(arguments.extent, this_thread(), all_threads(), Body{arguments}); \
  }
DUNLIN_GPU_REDUCES(DUNLIN_DEFINE_REDUCE)

#define DUNLIN_DEFINE_AVERAGE(name, element)                                                     \
  extern "C" __global__ void dunlin_##name(const __grid_constant__ AverageArguments arguments) { \
    using Body = AverageBody<element>;                                                           \
    for_elements<Body::Stored>(arguments.extent, this_thread(), all_threads(), Body{arguments});  \
  }
DUNLIN_GPU_AVERAGES(DUNLIN_DEFINE_AVERAGE)

extern "C" __global__ void dunlin_sgd(const __grid_constant__ SgdArguments arguments) {
  for_elements<float>(arguments.extent, this_thread(), all_threads(), SgdBody{arguments});
}

}  // namespace dunlin::collective::gpu
