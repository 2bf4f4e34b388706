// Element types, and the operators that combine elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/status.h"

namespace dunlin::collective {

enum class DataType : std::uint8_t {
  kInt8,
  kUint8,
  kInt32,
  kInt64,
  kFloat16,   // IEEE 754 binary16
  kBfloat16,  // the upper half of a binary32
  kFloat32,
  kFloat64,
};

enum class ReduceOp : std::uint8_t { kSum, kProduct, kMin, kMax, kAverage };

// Bytes per element. This is its alignment, too.
constexpr std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
      return 1;
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kFloat32:
      return 4;
    case DataType::kInt64:
    case DataType::kFloat64:
      return 8;
  }
  return 0;
}

constexpr bool is_integer(DataType type) {
  return type == DataType::kInt8 || type == DataType::kUint8 || type == DataType::kInt32 ||
         type == DataType::kInt64;
}

// The names that the parsers below read: "int8" ... "float64"; "sum", "prod", "min", "max", "avg".
const char* to_string(DataType type);
const char* to_string(ReduceOp op);

// Return kInvalidArgument for an unknown name. The message lists the known ones.
Result<DataType> parse_data_type(std::string_view text);
Result<ReduceOp> parse_reduce_op(std::string_view text);

}  // namespace dunlin::collective
