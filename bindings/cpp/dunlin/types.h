// Element types and reduce operations, their names, and what the other headers share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "collectives/kernels/data_type.h"

namespace dunlin {

using collective::DataType;
using collective::is_integer;
using collective::parse_data_type;
using collective::parse_reduce_op;
using collective::ReduceOp;
using collective::size_of;

using Bytes = std::vector<std::byte>;

// The DataType of a C++ type. There are none for float16 and bfloat16, which C++20 lacks.
template <typename T>
constexpr DataType data_type_of() {
  using Element = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<Element, std::int8_t>) {
    return DataType::kInt8;
  } else if constexpr (std::is_same_v<Element, std::uint8_t> ||
                       std::is_same_v<Element, std::byte>) {
    return DataType::kUint8;
  } else if constexpr (std::is_same_v<Element, std::int32_t>) {
    return DataType::kInt32;
  } else if constexpr (std::is_same_v<Element, std::int64_t>) {
    return DataType::kInt64;
  } else if constexpr (std::is_same_v<Element, float>) {
    return DataType::kFloat32;
  } else {
    static_assert(std::is_same_v<Element, double>, "no DataType stands for this type");
    return DataType::kFloat64;
  }
}

}  // namespace dunlin
