// One pass of the reduction kernels over a range of elements: what reduce.cc composes its calls
// of, compiled once per instruction set in sweep.cc. Internal to the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/data_type.h"

namespace dunlin::collective {

// What becomes of a floating-point result before it is stored.
enum class Finish : std::uint8_t {
  kNothing,
  kMultiply,  // by the factor: the reciprocal of a power of two, which gives the quotient's bits
  kDivide,    // by the factor
};

// The elements [begin, end) of every input and target. All of a step's loads come before its
// stores, so that a target may be an input.
struct Sweep {
  const std::byte* const* inputs = nullptr;
  std::size_t input_count = 0;
  std::byte* const* targets = nullptr;
  std::size_t target_count = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
  // Partial results, unrounded: float for float16 and bfloat16, the element type otherwise. What
  // comes before the first input, where there is something, and where the result goes instead of
  // to the targets. May be the same. Laid out by the sweeps, for sweeps of the same range.
  const std::byte* partial_in = nullptr;
  std::byte* partial_out = nullptr;
  Finish finish = Finish::kNothing;
  double factor = 1;
  // Streaming stores; element `begin` of every target is then aligned to kStreamAlignment.
  bool streams = false;
};

// A cache line, which is also the widest vector.
inline constexpr std::size_t kStreamAlignment = 64;

// `op` is not kAverage.
void sweep(DataType type, ReduceOp op, const Sweep& sweep);

}  // namespace dunlin::collective
