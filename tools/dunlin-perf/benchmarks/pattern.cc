#include "tools/dunlin-perf/benchmarks/pattern.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace dunlin::perf {
namespace {

using collective::DataType;
using collective::ReduceOp;

// The values have no short period, so that elements at a wrong place are noticed.
std::uint64_t mix(std::uint64_t number) {
  number *= 0x9e3779b97f4a7c15u;
  return (number ^ (number >> 29)) * 0xbf58476d1ce4e5b9u >> 40;
}

// One rank has one more than the average, and another rank one less.
std::int64_t deviation(int rank, int ranks, std::uint64_t index) {
  if (ranks == 1) return 0;
  const auto turn = (index + static_cast<std::uint64_t>(rank)) % static_cast<std::uint64_t>(ranks);
  return turn == 0 ? 1 : turn == 1 ? -1 : 0;
}

std::int64_t wrap(DataType type, std::int64_t value) {
  switch (type) {
    case DataType::kInt8:
      return static_cast<std::int8_t>(value);
    case DataType::kUint8:
      return static_cast<std::uint8_t>(value);
    case DataType::kInt32:
      return static_cast<std::int32_t>(value);
    default:
      return value;
  }
}

// `value` must be a normal number of binary16.
std::uint64_t encode_half(std::int64_t value) {
  if (value == 0) return 0;
  const auto magnitude = static_cast<double>(std::abs(value));
  const int exponent = std::ilogb(magnitude);
  const auto fraction =
      static_cast<std::uint64_t>(std::lround((std::ldexp(magnitude, -exponent) - 1) * 1024));
  return (value < 0 ? 0x8000u : 0u) | static_cast<std::uint64_t>(exponent + 15) << 10 | fraction;
}

}  // namespace

std::int64_t pattern_value(ReduceOp op, int rank, int ranks, std::uint64_t index) {
  switch (op) {
    case ReduceOp::kProduct:
      // At most two factors differ from 1.
      return 1 +
             std::abs(deviation(rank, ranks, index)) * static_cast<std::int64_t>(mix(index) % 3);
    case ReduceOp::kAverage:
      return 1 + static_cast<std::int64_t>(mix(index) % 3) + deviation(rank, ranks, index);
    default:
      return static_cast<std::int64_t>(mix(index * 1021 + static_cast<std::uint64_t>(rank)) % 4);
  }
}

std::int64_t pattern_result(collective::Reduction reduction, int ranks, std::uint64_t index) {
  std::int64_t result = pattern_value(reduction.op, 0, ranks, index);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::int64_t value = pattern_value(reduction.op, rank, ranks, index);
    switch (reduction.op) {
      case ReduceOp::kProduct:
        result *= value;
        break;
      case ReduceOp::kMin:
        result = std::min(result, value);
        break;
      case ReduceOp::kMax:
        result = std::max(result, value);
        break;
      default:
        result += value;
    }
  }
  result = wrap(reduction.type, result);
  return reduction.op == ReduceOp::kAverage ? result / ranks : result;
}

std::uint64_t encode(DataType type, std::int64_t value) {
  switch (type) {
    case DataType::kFloat16:
      return encode_half(value);
    case DataType::kBfloat16:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16;
    case DataType::kFloat32:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DataType::kFloat64:
      return std::bit_cast<std::uint64_t>(static_cast<double>(value));
    default:
      return static_cast<std::uint64_t>(value);
  }
}

}  // namespace dunlin::perf
