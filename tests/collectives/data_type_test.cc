#include "collectives/kernels/data_type.h"

#include <gtest/gtest.h>

#include <string>

namespace dunlin::collective {
namespace {

TEST(DataType, NamesAndSizes) {
  const struct {
    DataType type;
    const char* name;
    std::size_t size;
  } kAll[] = {{DataType::kInt8, "int8", 1},       {DataType::kUint8, "uint8", 1},
              {DataType::kInt32, "int32", 4},     {DataType::kInt64, "int64", 8},
              {DataType::kFloat16, "float16", 2}, {DataType::kBfloat16, "bfloat16", 2},
              {DataType::kFloat32, "float32", 4}, {DataType::kFloat64, "float64", 8}};
  for (const auto& each : kAll) {
    EXPECT_STREQ(to_string(each.type), each.name);
    EXPECT_EQ(size_of(each.type), each.size) << each.name;
    EXPECT_EQ(is_integer(each.type), std::string(each.name).find("int") != std::string::npos);
    const auto parsed = parse_data_type(each.name);
    ASSERT_TRUE(parsed.is_ok()) << each.name;
    EXPECT_EQ(*parsed, each.type);
  }
}

TEST(ReduceOp, Names) {
  const std::pair<ReduceOp, const char*> kAll[] = {{ReduceOp::kSum, "sum"},
                                                   {ReduceOp::kProduct, "prod"},
                                                   {ReduceOp::kMin, "min"},
                                                   {ReduceOp::kMax, "max"},
                                                   {ReduceOp::kAverage, "avg"}};
  for (const auto& [op, name] : kAll) {
    EXPECT_STREQ(to_string(op), name);
    const auto parsed = parse_reduce_op(name);
    ASSERT_TRUE(parsed.is_ok()) << name;
    EXPECT_EQ(*parsed, op);
  }
}

TEST(DataType, OtherNamesAreErrorsThatListTheNames) {
  for (const char* text : {"", "float", "float32 ", "Float32", "int16"}) {
    const auto status = parse_data_type(text).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_NE(status.message().find("bfloat16"), std::string_view::npos);
  }
  for (const char* text : {"", "add", "sum,"}) {
    const auto status = parse_reduce_op(text).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_NE(status.message().find("prod"), std::string_view::npos);
  }
}

}  // namespace
}  // namespace dunlin::collective
