// Shared by the tests of partial all-reduces.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "collectives/partial/partial_all_reduce.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {

using collective::DataType;
using collective::PartialAllReduce;
using collective::PartialCall;
using collective::PartialOptions;
using collective::PartialRequest;
using collective::ReduceOp;
using transport::Fabric;

using Members = std::vector<Rank>;

inline std::unique_ptr<PartialAllReduce> make_partial(Fabric& fabric, PartialOptions options = {}) {
  auto made = PartialAllReduce::create(fabric, std::move(options));
  EXPECT_TRUE(made.is_ok()) << made.status().to_string();
  return std::move(made).value();
}

inline Members ranks(std::initializer_list<int> values) {
  Members made;
  for (const int value : values) made.emplace_back(value);
  return made;
}

template <typename T>
PartialCall call_on(std::uint64_t number, Members members, std::span<T> model) {
  PartialCall call{.number = number, .members = std::move(members)};
  call.input = call.output = model.data();
  call.count = model.size();
  call.reduction.type = sizeof(T) == sizeof(double) ? DataType::kFloat64 : DataType::kFloat32;
  return call;
}

}  // namespace dunlin::testing
