#include "collectives/kernels/average.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>

#include "collectives/kernels/instruction_sets.h"

#ifndef DUNLIN_AVERAGE_KERNELS
#define DUNLIN_AVERAGE_KERNELS
namespace dunlin::collective {
namespace {

constinit Kernel<void(std::span<float>, float, std::span<const float* const>, const float*)>
    float_sums;
constinit Kernel<void(std::span<double>, double, std::span<const double* const>, const double*)>
    double_sums;
constinit Kernel<void(std::span<float>, std::span<const float* const>, float)> float_averages;
constinit Kernel<void(std::span<double>, std::span<const double* const>, double)> double_averages;

}  // namespace
}  // namespace dunlin::collective
#endif

// Highway compiles the code between HWY_BEFORE_NAMESPACE and HWY_AFTER_NAMESPACE once per
// instruction set, by including this file several times.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/average.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dunlin::collective::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Inputs per sweep over a chunk. Their weights stay in registers: 8 weights, the own weight and the
// sums fit into the 16 registers of AVX2.
constexpr std::size_t kInputsPerSweep = 8;

// Bytes of the model per chunk. If there are more inputs than one sweep takes, the sums of a chunk
// stay in the cache for the next sweep. This size fits every L2 and is long enough for prefetchers.
constexpr std::size_t kChunkBytes = 16 * 1024;

// Bytes per step. Whole cache lines, so that streams that share a cache set do not evict lines that
// are half read.
constexpr std::size_t kStepBytes = 64;

// A sum with weights: own_factor * model + sum of weights[k] * inputs[k]. Of several sweeps, the
// first one applies the factor; later ones add to its sums.
struct Weighted {
  static constexpr bool applies_factor(bool is_first, bool) { return is_first; }
  template <std::size_t kInputs, class D, typename T = hn::TFromD<D>>
  static HWY_INLINE void run(D d, T* model, std::size_t offset, T own_factor,
                             const T* const* inputs, const T* weights) {
    auto sum = hn::Mul(hn::Set(d, own_factor), hn::LoadU(d, model + offset));
    for (std::size_t k = 0; k < kInputs; ++k)
      sum = hn::MulAdd(hn::Set(d, weights[k]), hn::LoadU(d, inputs[k] + offset), sum);
    hn::StoreU(sum, d, model + offset);
  }
};

// A sum that is divided: (model + sum of inputs[k]) / divisor. Of several sweeps, the last one
// divides.
struct Uniform {
  static constexpr bool applies_factor(bool, bool is_last) { return is_last; }
  template <std::size_t kInputs, class D, typename T = hn::TFromD<D>>
  static HWY_INLINE void run(D d, T* model, std::size_t offset, T divisor, const T* const* inputs,
                             const T*) {
    auto sum = hn::LoadU(d, model + offset);
    for (std::size_t k = 0; k < kInputs; ++k) sum = hn::Add(sum, hn::LoadU(d, inputs[k] + offset));
    hn::StoreU(hn::Div(sum, hn::Set(d, divisor)), d, model + offset);
  }
};

// Computes the elements [begin, end) from exactly kInputs inputs, one vector of each at a time.
// `factor`: the own factor, or the divisor.
template <std::size_t kInputs, class Kind, typename T>
void sweep(T* HWY_RESTRICT model, std::size_t begin, std::size_t end, T factor,
           const T* const* inputs_in, const T* weights_in) {
  // Copies tell the compiler that stores to the model do not change them.
  std::array<const T*, kInputs> inputs{};
  std::array<T, kInputs> weights{};
  std::copy_n(inputs_in, kInputs, inputs.begin());
  if (weights_in != nullptr) std::copy_n(weights_in, kInputs, weights.begin());

  const hn::CappedTag<T, kStepBytes / sizeof(T)> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t step = std::max(lanes, kStepBytes / sizeof(T));
  std::size_t i = begin;
  for (; i + step <= end; i += step) {
    for (std::size_t j = 0; j < step; j += lanes) {
      Kind::template run<kInputs>(d, model, i + j, factor, inputs.data(), weights.data());
    }
  }
  const hn::CappedTag<T, 1> one;
  for (; i < end; ++i) {
    Kind::template run<kInputs>(one, model, i, factor, inputs.data(), weights.data());
  }
}

template <class Kind, typename T>
void sweep_any(T* model, std::size_t begin, std::size_t end, T factor,
               std::span<const T* const> inputs, const T* weights) {
  static_assert(kInputsPerSweep == 8, "a case for each number of inputs");
  switch (inputs.size()) {
    case 0:
      return sweep<0, Kind>(model, begin, end, factor, inputs.data(), weights);
    case 1:
      return sweep<1, Kind>(model, begin, end, factor, inputs.data(), weights);
    case 2:
      return sweep<2, Kind>(model, begin, end, factor, inputs.data(), weights);
    case 3:
      return sweep<3, Kind>(model, begin, end, factor, inputs.data(), weights);
    case 4:
      return sweep<4, Kind>(model, begin, end, factor, inputs.data(), weights);
    case 5:
      return sweep<5, Kind>(model, begin, end, factor, inputs.data(), weights);
    case 6:
      return sweep<6, Kind>(model, begin, end, factor, inputs.data(), weights);
    case 7:
      return sweep<7, Kind>(model, begin, end, factor, inputs.data(), weights);
    default:
      return sweep<8, Kind>(model, begin, end, factor, inputs.data(), weights);
  }
}

// Sweeps over chunks of the model. `factor`: as in sweep(); sweeps that do not apply it pass 1.
template <class Kind, typename T>
void average(std::span<T> model, std::span<const T* const> inputs, const T* weights, T factor) {
  const std::size_t chunk =
      inputs.size() > kInputsPerSweep ? kChunkBytes / sizeof(T) : model.size();
  for (std::size_t begin = 0; begin < model.size(); begin += chunk) {
    const std::size_t end = std::min(begin + chunk, model.size());
    std::size_t done = 0;
    do {
      const std::size_t now = std::min(inputs.size() - done, kInputsPerSweep);
      const bool applies = Kind::applies_factor(done == 0, done + now == inputs.size());
      sweep_any<Kind>(model.data(), begin, end, applies ? factor : T{1}, inputs.subspan(done, now),
                      weights == nullptr ? nullptr : weights + done);
      done += now;
    } while (done < inputs.size());
  }
}

void weighted_f32(std::span<float> model, float self_weight, std::span<const float* const> inputs,
                  const float* weights) {
  average<Weighted>(model, inputs, weights, self_weight);
}

void weighted_f64(std::span<double> model, double self_weight,
                  std::span<const double* const> inputs, const double* weights) {
  average<Weighted>(model, inputs, weights, self_weight);
}

void uniform_f32(std::span<float> model, std::span<const float* const> inputs, float divisor) {
  average<Uniform>(model, inputs, static_cast<const float*>(nullptr), divisor);
}

void uniform_f64(std::span<double> model, std::span<const double* const> inputs, double divisor) {
  average<Uniform>(model, inputs, static_cast<const double*>(nullptr), divisor);
}

}  // namespace dunlin::collective::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace dunlin::collective::HWY_NAMESPACE {

[[maybe_unused]] const bool kAreAdded[] = {
    float_sums.add(HWY_TARGET, &weighted_f32), double_sums.add(HWY_TARGET, &weighted_f64),
    float_averages.add(HWY_TARGET, &uniform_f32), double_averages.add(HWY_TARGET, &uniform_f64)};

}  // namespace dunlin::collective::HWY_NAMESPACE

#if HWY_ONCE
namespace dunlin::collective {

void weighted_average(std::span<float> model, float self_weight,
                      std::span<const float* const> inputs, std::span<const float> weights) {
  assert(inputs.size() == weights.size());
  if (is_uniform(self_weight, weights))
    return uniform_average(model, inputs, static_cast<float>(inputs.size() + 1));
  weighted_sum(model, self_weight, inputs, weights);
}

void weighted_average(std::span<double> model, double self_weight,
                      std::span<const double* const> inputs, std::span<const double> weights) {
  assert(inputs.size() == weights.size());
  if (is_uniform(self_weight, weights))
    return uniform_average(model, inputs, static_cast<double>(inputs.size() + 1));
  weighted_sum(model, self_weight, inputs, weights);
}

void weighted_sum(std::span<float> model, float self_weight, std::span<const float* const> inputs,
                  std::span<const float> weights) {
  float_sums.chosen()(model, self_weight, inputs, weights.data());
}

void weighted_sum(std::span<double> model, double self_weight,
                  std::span<const double* const> inputs, std::span<const double> weights) {
  double_sums.chosen()(model, self_weight, inputs, weights.data());
}

void uniform_average(std::span<float> model, std::span<const float* const> inputs, float divisor) {
  float_averages.chosen()(model, inputs, divisor);
}

void uniform_average(std::span<double> model, std::span<const double* const> inputs,
                     double divisor) {
  double_averages.chosen()(model, inputs, divisor);
}

}  // namespace dunlin::collective
#endif
