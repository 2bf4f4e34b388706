// The fused weighted average. Stochastic reduce uses it to average a rank's own model with the
// models of its neighbors, which it reads from the receive slots without a copy.
//
// The kernel is bound by memory: it reads each input and the model once and writes the model once,
// however many inputs there are. It chooses the widest SIMD instructions of the CPU at run time.
// Stateless, callable from any thread, never allocates.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/kernels/data_type.h"

namespace dunlin::collective {

// model[i] = self_weight * model[i] + sum over k of weights[k] * inputs[k][i]
//
// Every input holds model.size() elements, is aligned to its element type, and does not overlap the
// model. There is one weight per input; without inputs the model is only scaled. Zero weights are
// not skipped, so a NaN or an infinity in any input reaches the result.
//
// The sum is formed in the element type: the own part first, then the inputs in their order, with
// one fused multiply-add per input where the CPU has one. If all weights are 1 / n for n parts, the
// parts are added and the sum is divided once, so that averages of small integers are rounded
// correctly; sums beyond the largest number of the type become infinite then. Hence the result of
// an element depends on its operands and the weights only. It has the same bits in every run on one
// host, at any length, alignment and position. Hosts without FMA may differ in the last bits where
// weights differ.
void weighted_average(std::span<float> model, float self_weight,
                      std::span<const float* const> inputs, std::span<const float> weights);
void weighted_average(std::span<double> model, double self_weight,
                      std::span<const double* const> inputs, std::span<const double> weights);

// The same sum, also where all weights are 1 / n.
void weighted_sum(std::span<float> model, float self_weight, std::span<const float* const> inputs,
                  std::span<const float> weights);
void weighted_sum(std::span<double> model, double self_weight,
                  std::span<const double* const> inputs, std::span<const double> weights);

// model[i] = (model[i] + sum over k of inputs[k][i]) / divisor, added in this order.
void uniform_average(std::span<float> model, std::span<const float* const> inputs, float divisor);
void uniform_average(std::span<double> model, std::span<const double* const> inputs,
                     double divisor);

// True if an average with these weights is (own part + inputs) / (number of them).
template <typename T>
bool is_uniform(T self_weight, std::span<const T> weights) {
  if (self_weight != T{1} / static_cast<T>(weights.size() + 1)) return false;
  for (const T weight : weights) {
    if (weight != self_weight) return false;
  }
  return true;
}

// The same for weights that were rounded to the type in which sums of `type` are formed: float32
// for float16 and bfloat16. CPUs and GPUs judge weights in this way. False for integer types.
bool is_uniform(DataType type, double self_weight, std::span<const double> weights);

// weighted_average() for `count` elements of any floating-point type at `model`. float16 and
// bfloat16 are summed in float32 and rounded once, to nearest even. Integer types are not
// supported: nothing happens.
void weighted_average(DataType type, std::byte* model, std::size_t count, double self_weight,
                      std::span<const std::byte* const> inputs, std::span<const double> weights);

}  // namespace dunlin::collective
