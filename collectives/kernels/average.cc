#include "collectives/kernels/average.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>

// Highway compiles what stands between HWY_BEFORE_NAMESPACE and HWY_AFTER_NAMESPACE once per
// instruction set, by including this file again and again.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/average.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dunlin::collective::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Inputs per sweep over a chunk. Their weights stay in registers: 8, the own one and the sums fit
// into the 16 registers of AVX2.
constexpr std::size_t kInputsPerSweep = 8;

// Bytes of the model per chunk. With more inputs than a sweep takes, the sums of a chunk wait in
// cache for the next sweep: small enough for every L2, long enough for the prefetchers.
constexpr std::size_t kChunkBytes = 16 * 1024;

// Bytes per step: whole cache lines, so that streams that share a cache set don't evict one
// another's half-read lines.
constexpr std::size_t kStepBytes = 64;

// One vector of `d` at `model`, from one vector of each input at `offset`.
template <std::size_t kInputs, class D, typename T = hn::TFromD<D>>
HWY_INLINE void average_vector(D d, T* model, std::size_t offset, T self_weight,
                               const T* const* inputs, const T* weights) {
  auto sum = hn::Mul(hn::Set(d, self_weight), hn::LoadU(d, model + offset));
  for (std::size_t k = 0; k < kInputs; ++k) {
    sum = hn::MulAdd(hn::Set(d, weights[k]), hn::LoadU(d, inputs[k] + offset), sum);
  }
  hn::StoreU(sum, d, model + offset);
}

// The elements [begin, end) from exactly kInputs inputs.
template <std::size_t kInputs, typename T>
void sweep(T* HWY_RESTRICT model, std::size_t begin, std::size_t end, T self_weight,
           const T* const* inputs_in, const T* weights_in) {
  // Copies, so that the compiler knows that stores to the model don't change them.
  std::array<const T*, kInputs> inputs{};
  std::array<T, kInputs> weights{};
  std::copy_n(inputs_in, kInputs, inputs.begin());
  std::copy_n(weights_in, kInputs, weights.begin());

  const hn::CappedTag<T, kStepBytes / sizeof(T)> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t step = std::max(lanes, kStepBytes / sizeof(T));
  std::size_t i = begin;
  for (; i + step <= end; i += step) {
    for (std::size_t j = 0; j < step; j += lanes) {
      average_vector<kInputs>(d, model, i + j, self_weight, inputs.data(), weights.data());
    }
  }
  const hn::CappedTag<T, 1> one;
  for (; i < end; ++i) {
    average_vector<kInputs>(one, model, i, self_weight, inputs.data(), weights.data());
  }
}

template <typename T>
void sweep_any(T* model, std::size_t begin, std::size_t end, T self_weight,
               std::span<const T* const> inputs, const T* weights) {
  static_assert(kInputsPerSweep == 8, "a case for each number of inputs");
  switch (inputs.size()) {
    case 0:
      return sweep<0>(model, begin, end, self_weight, inputs.data(), weights);
    case 1:
      return sweep<1>(model, begin, end, self_weight, inputs.data(), weights);
    case 2:
      return sweep<2>(model, begin, end, self_weight, inputs.data(), weights);
    case 3:
      return sweep<3>(model, begin, end, self_weight, inputs.data(), weights);
    case 4:
      return sweep<4>(model, begin, end, self_weight, inputs.data(), weights);
    case 5:
      return sweep<5>(model, begin, end, self_weight, inputs.data(), weights);
    case 6:
      return sweep<6>(model, begin, end, self_weight, inputs.data(), weights);
    case 7:
      return sweep<7>(model, begin, end, self_weight, inputs.data(), weights);
    default:
      return sweep<8>(model, begin, end, self_weight, inputs.data(), weights);
  }
}

template <typename T>
void average(std::span<T> model, T self_weight, std::span<const T* const> inputs,
             const T* weights) {
  const std::size_t chunk =
      inputs.size() > kInputsPerSweep ? kChunkBytes / sizeof(T) : model.size();
  for (std::size_t begin = 0; begin < model.size(); begin += chunk) {
    const std::size_t end = std::min(begin + chunk, model.size());
    T own_weight = self_weight;
    std::size_t done = 0;
    do {
      const std::size_t now = std::min(inputs.size() - done, kInputsPerSweep);
      sweep_any(model.data(), begin, end, own_weight, inputs.subspan(done, now), weights + done);
      own_weight = 1;  // exact: later sweeps add to the sums of the earlier ones
      done += now;
    } while (done < inputs.size());
  }
}

void average_f32(std::span<float> model, float self_weight, std::span<const float* const> inputs,
                 const float* weights) {
  average(model, self_weight, inputs, weights);
}

void average_f64(std::span<double> model, double self_weight, std::span<const double* const> inputs,
                 const double* weights) {
  average(model, self_weight, inputs, weights);
}

}  // namespace dunlin::collective::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dunlin::collective {

HWY_EXPORT(average_f32);
HWY_EXPORT(average_f64);

void weighted_average(std::span<float> model, float self_weight,
                      std::span<const float* const> inputs, std::span<const float> weights) {
  assert(inputs.size() == weights.size());
  HWY_DYNAMIC_DISPATCH(average_f32)(model, self_weight, inputs, weights.data());
}

void weighted_average(std::span<double> model, double self_weight,
                      std::span<const double* const> inputs, std::span<const double> weights) {
  assert(inputs.size() == weights.size());
  HWY_DYNAMIC_DISPATCH(average_f64)(model, self_weight, inputs, weights.data());
}

}  // namespace dunlin::collective
#endif
