// The kernels, which nvcc compiles (kernel_list.h).
#include "apps/cnn/gpu/kernel_list.h"

namespace dunlin::cnn::gpu {

#define DUNLIN_DEFINE_PRODUCT(name, problem, type, rows)                          \
  extern "C" __global__ __launch_bounds__(kThreads) void dunlin_cnn_##name(       \
      const __grid_constant__ type arguments) {                                   \
    product<rows>(Block(), problem{arguments});                                   \
  }
DUNLIN_CNN_PRODUCTS(DUNLIN_DEFINE_PRODUCT)

#define DUNLIN_DEFINE_LAYER(name, type)                                           \
  extern "C" __global__ __launch_bounds__(kThreads) void dunlin_cnn_##name(       \
      const __grid_constant__ type arguments) {                                   \
    name(Block(), arguments);                                                     \
  }
DUNLIN_CNN_LAYERS(DUNLIN_DEFINE_LAYER)

}  // namespace dunlin::cnn::gpu
