// Scaled copies and sums that go to other memory than their operands: the passes of deposits in
// windows (collectives/rma).
//
// They are bound by memory, and choose the widest SIMD instructions of the CPU at run time.
// Stateless, callable from any thread, never allocate.
#pragma once

#include <span>

#include "collectives/kernels/reduce.h"

namespace dunlin::collective {

// target[i] = weight * input[i]
//
// The input has target.size() elements and does not overlap the target. All memory is aligned to
// its element type. With streaming stores (reduce.h), the stores have completed on return.
void copy_scaled(std::span<float> target, float weight, const float* input,
                 Stores stores = Stores::kCached);
void copy_scaled(std::span<double> target, double weight, const double* input,
                 Stores stores = Stores::kCached);

// target[i] = base[i] + weight * input[i]
//
// The base may be the target itself; otherwise the rules of copy_scaled() hold for it, too. There
// is one fused multiply-add where the CPU has one, so the bits are those of weighted_average() with
// an own weight of 1.
void add_scaled(std::span<float> target, const float* base, float weight, const float* input,
                Stores stores = Stores::kCached);
void add_scaled(std::span<double> target, const double* base, double weight, const double* input,
                Stores stores = Stores::kCached);

}  // namespace dunlin::collective
