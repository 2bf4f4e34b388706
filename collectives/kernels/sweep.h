// Sweep: one pass of the reduction kernels over a range of elements. reduce.cc composes reductions
// of sweeps; sweep.cc is compiled once per instruction set. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/kernels/data_type.h"

namespace dunlin::collective {

// The last step on a floating-point result before it is stored.
enum class Finish : std::uint8_t {
  kNothing,
  kMultiply,  // by the factor: the reciprocal of a power of two, which gives the quotient's bits
  kDivide,    // by the factor
};

// Reduces the elements [begin, end) of all inputs to all targets. In each step all loads come
// before the stores, so a target may be an input.
struct Sweep {
  const std::byte* const* inputs = nullptr;
  std::size_t input_count = 0;
  std::byte* const* targets = nullptr;
  std::size_t target_count = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
  // Partial results, not rounded: float for float16 and bfloat16, otherwise the element type.
  // partial_in, unless null, is the operand before the first input. partial_out, unless null, gets
  // the result in place of the targets. Both may be the same memory. Only sweeps over the same
  // range understand its layout.
  const std::byte* partial_in = nullptr;
  std::byte* partial_out = nullptr;
  Finish finish = Finish::kNothing;
  double factor = 1;
  // Use streaming stores. Element `begin` of every target must be aligned to kStreamAlignment.
  bool streams = false;
};

// A cache line, which is also the widest vector.
inline constexpr std::size_t kStreamAlignment = 64;

// `op` must not be kAverage.
void sweep(DataType type, ReduceOp op, const Sweep& sweep);

}  // namespace dunlin::collective
