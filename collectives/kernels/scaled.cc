#include "collectives/kernels/scaled.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "collectives/kernels/instruction_sets.h"
#include "collectives/kernels/sweep.h"

#ifndef DUNLIN_SCALED_KERNELS
#define DUNLIN_SCALED_KERNELS
namespace dunlin::collective {
namespace {

constinit Kernel<void(float*, std::size_t, float, const float*, bool)> float_copies;
constinit Kernel<void(double*, std::size_t, double, const double*, bool)> double_copies;
constinit Kernel<void(float*, std::size_t, const float*, float, const float*, bool)> float_sums;
constinit Kernel<void(double*, std::size_t, const double*, double, const double*, bool)>
    double_sums;

}  // namespace
}  // namespace dunlin::collective
#endif

// Highway compiles the code between HWY_BEFORE_NAMESPACE and HWY_AFTER_NAMESPACE once per
// instruction set, by including this file several times.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/scaled.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dunlin::collective::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One vector of the result; `base` is null for a copy.
template <bool kAdds, class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> value(D d, const T* base, hn::Vec<D> weight, const T* input, std::size_t i) {
  const auto scaled = hn::LoadU(d, input + i);
  if constexpr (kAdds) return hn::MulAdd(weight, scaled, hn::LoadU(d, base + i));
  return hn::Mul(weight, scaled);
}

template <bool kAdds, typename T>
void run_part(T* target, std::size_t begin, std::size_t end, const T* base, T weight,
              const T* input) {
  const hn::CappedTag<T, kStreamAlignment / sizeof(T)> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, weight);
  std::size_t i = begin;
  // Four vectors at a time, whose loads come before the stores.
  for (; i + 4 * lanes <= end; i += 4 * lanes) {
    const auto a = value<kAdds>(d, base, factor, input, i);
    const auto b = value<kAdds>(d, base, factor, input, i + lanes);
    const auto c = value<kAdds>(d, base, factor, input, i + 2 * lanes);
    const auto e = value<kAdds>(d, base, factor, input, i + 3 * lanes);
    hn::StoreU(a, d, target + i);
    hn::StoreU(b, d, target + i + lanes);
    hn::StoreU(c, d, target + i + 2 * lanes);
    hn::StoreU(e, d, target + i + 3 * lanes);
  }
  for (; i + lanes <= end; i += lanes)
    hn::StoreU(value<kAdds>(d, base, factor, input, i), d, target + i);
  const hn::CappedTag<T, 1> one;
  for (; i < end; ++i)
    hn::StoreU(value<kAdds>(one, base, hn::Set(one, weight), input, i), one, target + i);
}

template <bool kAdds, typename T>
void run(T* target, std::size_t count, const T* base, T weight, const T* input, bool streams) {
  if (!streams) return run_part<kAdds>(target, 0, count, base, weight, input);
  // Streaming stores write whole vectors to aligned addresses.
  const hn::CappedTag<T, kStreamAlignment / sizeof(T)> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t past = reinterpret_cast<std::uintptr_t>(target) % kStreamAlignment;
  std::size_t i = std::min(count, (kStreamAlignment - past) % kStreamAlignment / sizeof(T));
  run_part<kAdds>(target, 0, i, base, weight, input);
  const auto factor = hn::Set(d, weight);
  for (; i + lanes <= count; i += lanes)
    hn::Stream(value<kAdds>(d, base, factor, input, i), d, target + i);
  run_part<kAdds>(target, i, count, base, weight, input);
  hwy::FlushStream();
}

void copy_f32(float* target, std::size_t count, float weight, const float* input, bool streams) {
  run<false, float>(target, count, nullptr, weight, input, streams);
}

void copy_f64(double* target, std::size_t count, double weight, const double* input, bool streams) {
  run<false, double>(target, count, nullptr, weight, input, streams);
}

void add_f32(float* target, std::size_t count, const float* base, float weight, const float* input,
             bool streams) {
  run<true, float>(target, count, base, weight, input, streams);
}

void add_f64(double* target, std::size_t count, const double* base, double weight,
             const double* input, bool streams) {
  run<true, double>(target, count, base, weight, input, streams);
}

}  // namespace dunlin::collective::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace dunlin::collective::HWY_NAMESPACE {

[[maybe_unused]] const bool kAreAdded[] = {
    float_copies.add(HWY_TARGET, &copy_f32), double_copies.add(HWY_TARGET, &copy_f64),
    float_sums.add(HWY_TARGET, &add_f32), double_sums.add(HWY_TARGET, &add_f64)};

}  // namespace dunlin::collective::HWY_NAMESPACE

#if HWY_ONCE
namespace dunlin::collective {

void copy_scaled(std::span<float> target, float weight, const float* input, Stores stores) {
  float_copies.chosen()(target.data(), target.size(), weight, input, stores == Stores::kStreaming);
}

void copy_scaled(std::span<double> target, double weight, const double* input, Stores stores) {
  double_copies.chosen()(target.data(), target.size(), weight, input, stores == Stores::kStreaming);
}

void add_scaled(std::span<float> target, const float* base, float weight, const float* input,
                Stores stores) {
  float_sums.chosen()(target.data(), target.size(), base, weight, input,
                      stores == Stores::kStreaming);
}

void add_scaled(std::span<double> target, const double* base, double weight, const double* input,
                Stores stores) {
  double_sums.chosen()(target.data(), target.size(), base, weight, input,
                       stores == Stores::kStreaming);
}

}  // namespace dunlin::collective
#endif
