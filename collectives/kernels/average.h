// The fused weighted average: what stochastic reduce does with its own model and what its
// neighbours sent, straight from the receive slots.
//
// Memory-bound by design: each input and the model are read once, and the model is written once,
// however many inputs there are. The widest SIMD that the CPU has is found at run time. Stateless;
// any thread; never allocates.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/data_type.h"

namespace dunlin::collective {

// model[i] = self_weight * model[i] + sum over k of weights[k] * inputs[k][i]
//
// Every input holds model.size() elements, needs no more than the alignment of its element type,
// and does not overlap the model. There is a weight per input; none of either scales the model.
// Zero weights are not skipped, so that a NaN or an infinity in any input shows.
//
// The sum is formed in the element type, own part first and then the inputs in their order, with a
// fused multiply-add per input where the CPU has one. Hence an element's result depends on nothing
// but its operands: it is bitwise the same in every run on one machine, at any length, alignment
// and place. Machines without FMA may differ in the last bits.
void weighted_average(std::span<float> model, float self_weight,
                      std::span<const float* const> inputs, std::span<const float> weights);
void weighted_average(std::span<double> model, double self_weight,
                      std::span<const double* const> inputs, std::span<const double> weights);

// The same for `count` elements of any floating-point type at `model`. float16 and bfloat16 are
// summed in float32 and rounded once, to nearest even.
void weighted_average(DataType type, std::byte* model, std::size_t count, double self_weight,
                      std::span<const std::byte* const> inputs, std::span<const double> weights);

}  // namespace dunlin::collective
