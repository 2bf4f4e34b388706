// The reduction kernels: what collectives do with the parts that they receive, element by element.
//
// Memory-bound by design: with up to 8 inputs and 4 targets, each input is read once and each
// target written once, in one pass; with more of them, blocks that fit into the first-level cache
// pass through it. The widest SIMD that the CPU has is found at run time. Stateless; any thread;
// never allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/data_type.h"

namespace dunlin::collective {

struct Reduction {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool operator==(const Reduction&) const = default;
};

enum class Stores : std::uint8_t {
  kCached,
  // Past the caches, without reading the targets' lines first: for targets larger than the caches,
  // or read next by somebody else. Done when the call returns: what the caller then publishes by a
  // release store comes after the data. Targets that differ in their place within a cache line are
  // stored to as with kCached.
  kStreaming,
};

// Each targets[t][i] = inputs[0][i] op inputs[1][i] op ..., in this order, for i < count. kAverage
// is the sum divided by `divisor`, which the other operations don't look at; the steps before the
// last one of an average pass 1.
//
// There is at least one input and one target. Each holds `count` elements and needs no more than
// their alignment. A target may be one of the inputs; otherwise no target overlaps anything.
// Inputs may overlap one another.
//
// An element's result depends on its operands and their order alone: it is bitwise the same at any
// length, alignment and place, with either kind of stores, and on every machine, as far as the
// floating-point environment is the usual one (round to nearest, denormals kept):
//   - float32 and float64 round after every operation; no fused multiply-add.
//   - float16 and bfloat16 are combined (and divided) in float32 and rounded once, to nearest even.
//   - A NaN among the operands of min or max makes the result NaN, as it does in sums and products;
//     -0 is less than +0. Hence the order of the operands of min and max does not matter.
//   - Every NaN that comes out is the positive quiet one without payload.
//   - Integer sums and products wrap. The average divides the wrapped sum and truncates toward
//     zero.
// One input, undivided, is copied bit by bit, NaNs included.
void reduce(Reduction reduction, std::span<const std::byte* const> inputs,
            std::span<std::byte* const> targets, std::size_t count, std::size_t divisor = 1,
            Stores stores = Stores::kCached);

// The same with one input and bytes for elements: moves data, with streaming stores where wanted,
// to several places while reading it once.
void copy(const std::byte* input, std::span<std::byte* const> targets, std::size_t size_bytes,
          Stores stores = Stores::kCached);

}  // namespace dunlin::collective
