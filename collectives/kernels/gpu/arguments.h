// The parameters of the GPU kernels of this folder. A kernel has one parameter, a structure that
// holds everything it needs, so that one launch does one reduction whatever the number of inputs
// and targets. The layout is the same for the host's compiler and for nvcc.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dunlin::collective::gpu {

// The most inputs and targets of one launch. The parameter of a kernel may take 4 KiB on every GPU
// that the kernels are built for. More inputs would take two launches, and sums of float16 would be
// rounded where they are stored between the two.
inline constexpr std::size_t kMostInputs = 128;
inline constexpr std::size_t kMostTargets = 128;

// Bytes of one load or store of a thread, the largest that a GPU has.
inline constexpr std::size_t kVectorBytes = 16;

// How the elements are divided among the threads of a launch. Elements [first, first + vectors *
// (elements of a vector)) are processed by vectors: there, all addresses are multiples of
// kVectorBytes. The others are processed one by one.
struct Extent {
  std::uint64_t count = 0;    // elements
  std::uint64_t first = 0;    // element
  std::uint64_t vectors = 0;  // 0: one by one
};

// targets[t][i] = inputs[0][i] op inputs[1][i] op ..., then divided (collectives/kernels/reduce.h).
struct ReduceArguments {
  Extent extent;
  std::uint32_t input_count = 0;
  std::uint32_t target_count = 0;
  // How a sum is divided for an average; 1 if it is not. Integers are divided by `divisor`.
  // Floating-point sums are multiplied by `factor` if the divisor is a power of two, which gives
  // the same bits, and otherwise divided by `divisor`.
  double factor = 1;
  std::uint64_t divisor = 1;
  const void* inputs[kMostInputs] = {};
  void* targets[kMostTargets] = {};
};

// model[i] = self_weight * own[i] + sum of weights[k] * inputs[k][i]
// (collectives/kernels/average.h).
struct AverageArguments {
  Extent extent;
  std::uint32_t input_count = 0;
  double self_weight = 1;
  const void* own = nullptr;
  void* model = nullptr;
  const void* inputs[kMostInputs] = {};
  double weights[kMostInputs] = {};
};

// velocity[i] = momentum * velocity[i] + gradient[i] + weight_decay * parameters[i], and
// parameters[i] -= learning_rate * velocity[i]. Without a velocity (null), the momentum is 0.
struct SgdArguments {
  Extent extent;
  float* parameters = nullptr;
  const float* gradient = nullptr;
  float* velocity = nullptr;
  float learning_rate = 0;
  float momentum = 0;
  float weight_decay = 0;
};

static_assert(sizeof(ReduceArguments) <= 4096 && sizeof(AverageArguments) <= 4096);

}  // namespace dunlin::collective::gpu
