// Weighted averages of an element type that is known at run time only.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "collectives/kernels/average.h"

namespace dunlin::collective {
namespace {

// Inputs are processed in blocks that fit on the stack. Later blocks add to the model.
constexpr std::size_t kMostInputs = 32;

// Compares as is_uniform() of average.h does.
template <typename T>
bool is_uniform_in(double self_weight, std::span<const double> weights) {
  const T part = T{1} / static_cast<T>(weights.size() + 1);
  return static_cast<T>(self_weight) == part && std::ranges::all_of(weights, [&](double weight) {
           return static_cast<T>(weight) == part;
         });
}

template <typename T>
void average(std::byte* model, std::size_t count, double self_weight,
             std::span<const std::byte* const> inputs, std::span<const double> weights) {
  std::array<const T*, kMostInputs> typed;
  std::array<T, kMostInputs> scaled;
  const std::span<T> target(reinterpret_cast<T*>(model), count);
  const bool is_even = is_uniform_in<T>(self_weight, weights);
  std::size_t done = 0;
  do {
    const std::size_t size = std::min(kMostInputs, inputs.size() - done);
    for (std::size_t i = 0; i < size; ++i) {
      typed[i] = reinterpret_cast<const T*>(inputs[done + i]);
      scaled[i] = static_cast<T>(weights[done + i]);
    }
    const std::span<const T* const> block(typed.data(), size);
    const bool is_first = done == 0;
    done += size;
    if (is_even) {
      uniform_average(target, block,
                      done == inputs.size() ? static_cast<T>(inputs.size() + 1) : T{1});
    } else {
      weighted_sum(target, is_first ? static_cast<T>(self_weight) : T{1}, block,
                   std::span<const T>(scaled.data(), size));
    }
  } while (done < inputs.size());
}

float widen_bfloat(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t narrow_to_bfloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return static_cast<std::uint16_t>((bits >> 16) | 0x40);  // a quiet NaN
  const std::uint32_t half = 0x7fff + ((bits >> 16) & 1);                      // ties to even
  return static_cast<std::uint16_t>((bits + half) >> 16);
}

float widen_half(std::uint16_t bits) {
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

std::uint16_t narrow_to_half(float value) {
  return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}

template <float (*widen)(std::uint16_t), std::uint16_t (*narrow)(float)>
void average_narrow(std::byte* model, std::size_t count, double self_weight,
                    std::span<const std::byte* const> inputs, std::span<const double> weights) {
  const auto element = [](const std::byte* at, std::size_t i) {
    std::uint16_t bits;
    std::memcpy(&bits, at + i * sizeof bits, sizeof bits);
    return widen(bits);
  };
  const bool is_even = is_uniform_in<float>(self_weight, weights);
  for (std::size_t i = 0; i < count; ++i) {
    float sum = (is_even ? 1.0F : static_cast<float>(self_weight)) * element(model, i);
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      sum += (is_even ? 1.0F : static_cast<float>(weights[k])) * element(inputs[k], i);
    }
    if (is_even) sum /= static_cast<float>(inputs.size() + 1);
    const std::uint16_t bits = narrow(sum);
    std::memcpy(model + i * sizeof bits, &bits, sizeof bits);
  }
}

}  // namespace

bool is_uniform(DataType type, double self_weight, std::span<const double> weights) {
  if (is_integer(type)) return false;
  return type == DataType::kFloat64 ? is_uniform_in<double>(self_weight, weights)
                                    : is_uniform_in<float>(self_weight, weights);
}

void weighted_average(DataType type, std::byte* model, std::size_t count, double self_weight,
                      std::span<const std::byte* const> inputs, std::span<const double> weights) {
  switch (type) {
    case DataType::kFloat64:
      return average<double>(model, count, self_weight, inputs, weights);
    case DataType::kFloat32:
      return average<float>(model, count, self_weight, inputs, weights);
    case DataType::kFloat16:
      return average_narrow<widen_half, narrow_to_half>(model, count, self_weight, inputs, weights);
    case DataType::kBfloat16:
      return average_narrow<widen_bfloat, narrow_to_bfloat>(model, count, self_weight, inputs,
                                                            weights);
    default:
      return;  // integers have no average
  }
}

}  // namespace dunlin::collective
