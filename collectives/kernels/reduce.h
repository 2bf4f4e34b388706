// The reduction kernels, which combine the vectors of several ranks element by element.
//
// They are bound by memory. With up to 8 inputs and 4 targets, one pass reads each input once and
// writes each target once. More inputs or targets are processed in blocks that fit into the
// first-level cache. The kernels choose the widest SIMD instructions of the CPU at run time.
// Stateless, callable from any thread, never allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/kernels/data_type.h"

namespace dunlin::collective {

struct Reduction {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool operator==(const Reduction&) const = default;
};

enum class Stores : std::uint8_t {
  kCached,
  // Streaming stores bypass the caches and do not read the targets' cache lines first. Use them for
  // targets that are larger than the caches, or that another process reads next. The stores have
  // completed when the call returns: a release store that the caller makes afterwards is visible
  // after the data. Targets at different offsets within a cache line get cached stores instead.
  kStreaming,
};

// Computes targets[t][i] = inputs[0][i] op inputs[1][i] op ..., in this order, for every t and for
// i < count. kAverage is the sum divided by `divisor`, which other operators ignore. An average in
// several steps passes 1 in all steps but the last.
//
// There is at least one input and one target. Each holds `count` elements and is aligned to its
// element type. A target may be one of the inputs; otherwise no target overlaps an input or another
// target. Inputs may overlap one another.
//
// The result of an element depends only on its operands and their order. It has the same bits at
// any length, alignment and position, with either kind of store, and on every host, provided that
// the floating-point environment is the default one (round to nearest, denormals kept):
//   - float32 and float64 round after every operation; there is no fused multiply-add.
//   - float16 and bfloat16 are combined (and divided) in float32 and rounded once, to nearest even.
//   - A NaN among the operands of min or max makes the result NaN, as in sums and products. -0 is
//     less than +0. Hence the order of the operands of min and max does not matter.
//   - Every NaN in a result is the positive quiet NaN without payload.
//   - Integer sums and products wrap. The average divides the wrapped sum and truncates toward
//     zero.
// A single input that is not divided is copied bit by bit, NaNs included.
void reduce(Reduction reduction, std::span<const std::byte* const> inputs,
            std::span<std::byte* const> targets, std::size_t count, std::size_t divisor = 1,
            Stores stores = Stores::kCached);

// Copies one input of `size_bytes` bytes to all targets and reads it only once. The rules of
// reduce() for overlap and streaming stores apply.
void copy(const std::byte* input, std::span<std::byte* const> targets, std::size_t size_bytes,
          Stores stores = Stores::kCached);

}  // namespace dunlin::collective
