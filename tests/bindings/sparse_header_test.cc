// What the all-reduce of sparse tensors refuses of another rank's message.
#include "bindings/c10d/sparse_header.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <limits>

namespace dunlin::testing {
namespace {

using torch_backend::SparseHeader;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

Bytes indices_of(std::initializer_list<std::int64_t> indices) {
  ByteWriter writer;
  for (const std::int64_t index : indices) writer.number(index);
  return writer.take();
}

TEST(SparseHeader, KnowsWhetherIndicesLieWithinTheSizes) {
  const SparseHeader header{6, 2, {6, 3, 2}, 2};
  EXPECT_TRUE(header.accepts_indices(indices_of({0, 5, 2, 1})));
  for (const std::int64_t index : {std::int64_t{-1}, std::int64_t{6}, kMost})
    EXPECT_FALSE(header.accepts_indices(indices_of({0, index, 2, 1}))) << index;
  // 5 is an index of the first dimension only.
  EXPECT_FALSE(header.accepts_indices(indices_of({0, 5, 2, 5})));
}

TEST(SparseHeader, KnowsWhetherIndicesAreComplete) {
  const SparseHeader header{6, 2, {6, 3, 2}, 2};
  EXPECT_FALSE(header.accepts_indices(indices_of({0, 5, 2})));
  EXPECT_FALSE(header.accepts_indices(indices_of({0, 5, 2, 1, 0})));
  EXPECT_TRUE((SparseHeader{6, 2, {6, 3, 2}, 0}).accepts_indices({}));
  EXPECT_FALSE((SparseHeader{6, 1, {6}, kMost}).accepts_indices(indices_of({0})));
}

TEST(SparseHeader, RefusesNumbersThatOverflow) {
  EXPECT_TRUE((SparseHeader{6, 1, {6, 2}, 5}).contents(4));
  EXPECT_FALSE((SparseHeader{6, 1, {6, 2}, kMost / 4}).contents(4));
  EXPECT_FALSE((SparseHeader{6, 1, {6, kMost}, 2}).contents(4));
}

}  // namespace
}  // namespace dunlin::testing
