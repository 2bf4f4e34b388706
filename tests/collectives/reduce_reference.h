// A reference for the reduction kernels: implements the contract of collectives/kernels/reduce.h in
// another way, element by element.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "collectives/kernels/data_type.h"

namespace dunlin::collective::reference {

template <typename To, typename From>
To bits_of(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

inline float from_float16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int mantissa = bits & 0x3ff;
  float value = 0;
  if (exponent == 0x1f) {
    value = mantissa == 0 ? std::numeric_limits<float>::infinity()
                          : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    value = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

inline std::uint16_t to_float16(float value) {
  if (std::isnan(value)) return 0x7e00;
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude >= 65520) return sign | 0x7c00;  // halfway between the largest number and 2^16
  int exponent = -14;                            // also of denormals
  if (magnitude >= 0x1p-14) exponent = std::ilogb(magnitude);
  // In units of the last place. A mantissa that rounds up to 2048 carries into the exponent.
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  return static_cast<std::uint16_t>(sign | ((exponent + 14) * 1024 + units));
}

inline float from_bfloat16(std::uint16_t bits) {
  return bits_of<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t to_bfloat16(float value) {
  if (std::isnan(value)) return 0x7fc0;
  const auto bits = bits_of<std::uint32_t>(value);
  const std::uint32_t cut = bits & 0xffff;
  const auto below = static_cast<std::uint16_t>(bits >> 16);
  const bool up = cut > 0x8000 || (cut == 0x8000 && (below & 1) != 0);
  return static_cast<std::uint16_t>(below + (up ? 1 : 0));
}

template <typename T>
T combine_integers(ReduceOp op, T a, T b) {
  using Unsigned = std::uint64_t;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    case ReduceOp::kProduct:
      return static_cast<T>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b));
    case ReduceOp::kMin:
      return b < a ? b : a;
    case ReduceOp::kMax:
      return a < b ? b : a;
  }
  return a;
}

template <typename T>
T combine_floats(ReduceOp op, T a, T b) {
  const bool a_first = a < b || (a == b && std::signbit(a));
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return a + b;
    case ReduceOp::kProduct:
      return a * b;
    case ReduceOp::kMin:
      return std::isnan(a) || std::isnan(b) ? a + b : a_first ? a : b;
    case ReduceOp::kMax:
      return std::isnan(a) || std::isnan(b) ? a + b : a_first ? b : a;
  }
  return a;
}

template <typename T>
T divided(T value, std::size_t divisor) {
  if constexpr (std::is_floating_point_v<T>) {
    return divisor == 1 ? value : value / static_cast<T>(divisor);
  } else {
    __extension__ using Wide = __int128;
    return static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(divisor));
  }
}

// `widen` and `narrow` convert between the stored and the computing type.
template <typename Stored, typename Widen, typename Narrow>
std::vector<std::byte> reduce_elements(ReduceOp op, std::span<const std::byte* const> inputs,
                                       std::size_t count, std::size_t divisor, Widen widen,
                                       Narrow narrow) {
  std::vector<std::byte> results(count * sizeof(Stored));
  for (std::size_t i = 0; i < count; ++i) {
    Stored element;
    std::memcpy(&element, inputs[0] + i * sizeof(Stored), sizeof(Stored));
    if (inputs.size() > 1 || divisor != 1) {
      auto value = widen(element);
      using Computed = decltype(value);
      for (const std::byte* input : inputs.subspan(1)) {
        std::memcpy(&element, input + i * sizeof(Stored), sizeof(Stored));
        if constexpr (std::is_floating_point_v<Computed>) {
          value = combine_floats(op, value, widen(element));
        } else {
          value = combine_integers(op, value, widen(element));
        }
      }
      element = narrow(divided(value, divisor));
    }
    std::memcpy(results.data() + i * sizeof(Stored), &element, sizeof(Stored));
  }
  return results;
}

template <typename T>
std::vector<std::byte> reduce_plain(ReduceOp op, std::span<const std::byte* const> inputs,
                                    std::size_t count, std::size_t divisor) {
  const auto one_nan = [](T value) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(value)) return std::numeric_limits<T>::quiet_NaN();
    }
    return value;
  };
  return reduce_elements<T>(
      op, inputs, count, divisor, [](T value) { return value; }, one_nan);
}

inline std::vector<std::byte> reduce(DataType type, ReduceOp op,
                                     std::span<const std::byte* const> inputs, std::size_t count,
                                     std::size_t divisor = 1) {
  if (op != ReduceOp::kAverage) divisor = 1;
  switch (type) {
    case DataType::kInt8:
      return reduce_plain<std::int8_t>(op, inputs, count, divisor);
    case DataType::kUint8:
      return reduce_plain<std::uint8_t>(op, inputs, count, divisor);
    case DataType::kInt32:
      return reduce_plain<std::int32_t>(op, inputs, count, divisor);
    case DataType::kInt64:
      return reduce_plain<std::int64_t>(op, inputs, count, divisor);
    case DataType::kFloat16:
      return reduce_elements<std::uint16_t>(op, inputs, count, divisor, from_float16, to_float16);
    case DataType::kBfloat16:
      return reduce_elements<std::uint16_t>(op, inputs, count, divisor, from_bfloat16, to_bfloat16);
    case DataType::kFloat32:
      return reduce_plain<float>(op, inputs, count, divisor);
    case DataType::kFloat64:
      return reduce_plain<double>(op, inputs, count, divisor);
  }
  return {};
}

}  // namespace dunlin::collective::reference
