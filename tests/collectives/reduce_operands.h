// Operands for tests of reductions, of every type, with the numbers that are special.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "collectives/kernels/data_type.h"
#include "tests/collectives/reduce_reference.h"

namespace dunlin::collective::reference {

inline constexpr std::array kTypes = {DataType::kInt8,    DataType::kUint8,   DataType::kInt32,
                                      DataType::kInt64,   DataType::kFloat16, DataType::kBfloat16,
                                      DataType::kFloat32, DataType::kFloat64};
inline constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin,
                                    ReduceOp::kMax, ReduceOp::kAverage};

// Draws ordinary numbers; one in eight is a special one.
template <typename T>
T any_float(std::mt19937_64& random) {
  using Limits = std::numeric_limits<T>;
  constexpr T kNan = Limits::quiet_NaN();
  constexpr T kTiny = Limits::denorm_min();
  const T special[] = {0,
                       -T(0),
                       1,
                       -1,
                       Limits::infinity(),
                       -Limits::infinity(),
                       Limits::max(),
                       Limits::lowest(),
                       kTiny,
                       -3 * kTiny,
                       Limits::min(),
                       Limits::epsilon(),
                       kNan,
                       -kNan};
  const std::uint64_t draw = random();
  if (draw % 8 == 0) return special[(draw >> 8) % std::size(special)];
  return std::uniform_real_distribution<T>(-4, 4)(random);
}

// Returns `count` elements of a type from a pool that each thread fills once.
inline void fill_operands(DataType type, std::mt19937_64& random, std::byte* to,
                          std::size_t count) {
  static constexpr std::size_t kPool = 1 << 16;
  static thread_local std::array<std::vector<std::byte>, kTypes.size()> pools;
  auto& pool = pools[static_cast<std::size_t>(type)];
  const std::size_t element = size_of(type);
  for (std::size_t i = pool.size() / element; i < kPool; ++i) {
    const auto append = [&](auto value) {
      const auto* bytes = reinterpret_cast<const std::byte*>(&value);
      pool.insert(pool.end(), bytes, bytes + element);
    };
    // All bit patterns are numbers. Numbers of two bytes are close to one another more often.
    const bool near = random() % 4 != 0;
    if (type == DataType::kFloat32) {
      append(any_float<float>(random));
    } else if (type == DataType::kFloat64) {
      append(any_float<double>(random));
    } else if (type == DataType::kFloat16 && near) {
      append(to_float16(any_float<float>(random)));
    } else if (type == DataType::kBfloat16 && near) {
      append(to_bfloat16(any_float<float>(random)));
    } else {
      append(random());
    }
  }
  const std::size_t first = random() % (kPool - count);
  std::copy_n(pool.data() + first * element, count * element, to);
}

template <typename T>
bool is_nan_at(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return std::isnan(value);
}

// Whether an element of a floating-point type is a NaN.
inline bool is_nan(DataType type, const std::byte* at) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  switch (type) {
    case DataType::kFloat32:
      return is_nan_at<float>(at);
    case DataType::kFloat64:
      return is_nan_at<double>(at);
    case DataType::kFloat16:
      return (bits & 0x7fff) > 0x7c00;
    default:
      return (bits & 0x7fff) > 0x7f80;
  }
}

}  // namespace dunlin::collective::reference
