// Support for the tests of dunlin-svm's data: writing a data set as LIBSVM text, and comparing data
// sets.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "apps/svm/dataset.h"

namespace dunlin::svm {

// Prints values with all their digits, so that reading gives the same floats.
inline std::string text_of(const Dataset& data) {
  std::string text;
  for (std::size_t i = 0; i < data.rows(); ++i) {
    const Row row = data.row(i);
    text += row.label > 0 ? "+1" : "-1";
    for (std::size_t k = 0; k < row.indices.size(); ++k) {
      text += fmt::format(" {}:{}", row.indices[k] + 1, row.values[k]);
    }
    text += '\n';
  }
  return text;
}

inline bool are_same(const Row& a, const Row& b) {
  return a.label == b.label && std::ranges::equal(a.indices, b.indices) &&
         std::ranges::equal(a.values, b.values);
}

inline void expect_same(const Dataset& actual, const Dataset& expected) {
  EXPECT_EQ(actual.features, expected.features);
  EXPECT_EQ(actual.total_rows, expected.total_rows);
  EXPECT_EQ(actual.labels, expected.labels);
  EXPECT_EQ(actual.numbers, expected.numbers);
  EXPECT_EQ(actual.row_begin, expected.row_begin);
  EXPECT_EQ(actual.indices, expected.indices);
  EXPECT_EQ(actual.values, expected.values);
}

// Checks that row i of the whole is the next row of shard i % shards, and that no shard has more
// rows.
inline void expect_dealt_from(const Dataset& whole, const std::vector<Dataset>& shards) {
  std::vector<std::size_t> used(shards.size());
  for (std::size_t i = 0; i < whole.rows(); ++i) {
    const std::size_t rank = i % shards.size();
    ASSERT_LT(used[rank], shards[rank].rows());
    EXPECT_EQ(shards[rank].numbers[used[rank]], i);
    EXPECT_TRUE(are_same(shards[rank].row(used[rank]++), whole.row(i))) << "row " << i;
  }
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    EXPECT_EQ(used[rank], shards[rank].rows());
  }
}

}  // namespace dunlin::svm
