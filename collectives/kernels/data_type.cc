#include "collectives/kernels/data_type.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace dunlin::collective {
namespace {

// Indexed by the values of the enumerators.
constexpr std::array kTypeNames = {"int8",    "uint8",    "int32",   "int64",
                                   "float16", "bfloat16", "float32", "float64"};
constexpr std::array kOpNames = {"sum", "prod", "min", "max", "avg"};
static_assert(kTypeNames.size() == static_cast<std::size_t>(DataType::kFloat64) + 1);
static_assert(kOpNames.size() == static_cast<std::size_t>(ReduceOp::kAverage) + 1);

template <typename Enum, std::size_t kCount>
const char* name_of(Enum value, const std::array<const char*, kCount>& names) {
  const auto index = static_cast<std::size_t>(value);
  return index < kCount ? names[index] : "?";
}

template <typename Enum, std::size_t kCount>
Result<Enum> parse(std::string_view text, std::string_view what,
                   const std::array<const char*, kCount>& names) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found != names.end()) return static_cast<Enum>(found - names.begin());
  return Status(Code::kInvalidArgument,
                fmt::format("'{}' is not a {}; known are {}", text, what, fmt::join(names, ", ")));
}

}  // namespace

const char* to_string(DataType type) {
  return name_of(type, kTypeNames);
}
const char* to_string(ReduceOp op) {
  return name_of(op, kOpNames);
}

Result<DataType> parse_data_type(std::string_view text) {
  return parse<DataType>(text, "data type", kTypeNames);
}

Result<ReduceOp> parse_reduce_op(std::string_view text) {
  return parse<ReduceOp>(text, "reduce operation", kOpNames);
}

}  // namespace dunlin::collective
