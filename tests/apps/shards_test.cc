#include "apps/shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "apps/svm/program/data.h"

namespace dunlin::svm {
namespace {

Options generated() {
  Options options;
  options.is_generated = true;
  options.generate.rows = 30;
  options.generate.features = 100;
  options.generate.nonzeros_per_row = 5;
  return options;
}

using Rows = Shards<Dataset>;

Result<Rows> load(const Options& options, Shard shard) {
  return Rows::load([&options](Shard wanted) { return load_shard(options, wanted); }, shard);
}

// Waits for the thread that reads.
Result<bool> change(Rows& shards) {
  for (;;) {
    const auto changed = shards.refresh();
    if (!changed || *changed) return changed;
    std::this_thread::yield();
  }
}

void expect_equal(const Dataset& found, const Dataset& expected) {
  EXPECT_EQ(found.row_begin, expected.row_begin);
  EXPECT_EQ(found.indices, expected.indices);
  EXPECT_EQ(found.values, expected.values);
  EXPECT_EQ(found.labels, expected.labels);
}

TEST(Shards, TheFormerRowsStayUntilTheNewOnesAreTakenOver) {
  const Options options = generated();
  Rows shards = load(options, {0, 3}).value();
  EXPECT_EQ(shards.data().rows(), 10U);
  shards.want({1, 2});
  EXPECT_EQ(shards.data().rows(), 10U);
  ASSERT_TRUE(change(shards).value());
  expect_equal(shards.data(), load(options, {1, 2}).value().data());
  EXPECT_FALSE(shards.refresh().value());
  shards.want({1, 2});
  EXPECT_FALSE(shards.refresh().value()) << "it has them";
}

TEST(Shards, WhatIsWantedLastCounts) {
  const Options options = generated();
  Rows shards = load(options, {0, 3}).value();
  shards.want({0, 2});
  shards.want({2, 5});
  ASSERT_TRUE(change(shards).value());
  expect_equal(shards.data(), load(options, {2, 5}).value().data());
}

TEST(Shards, ComingBackToTheFirstRowsNeedsNoChange) {
  const Options options = generated();
  Rows shards = load(options, {0, 3}).value();
  shards.want({0, 2});
  shards.want({0, 3});
  for (int turn = 0; turn < 1000; ++turn) {
    EXPECT_FALSE(shards.refresh().value());
    std::this_thread::yield();
  }
  EXPECT_EQ(shards.data().rows(), 10U);
}

TEST(Shards, RowsThatCannotBeReadAreAnErrorOnce) {
  Options options = generated();
  Rows shards = load(options, {0, 3}).value();
  options.is_generated = false;
  options.train = "/nowhere";
  shards.want({0, 2});
  EXPECT_FALSE(change(shards).is_ok());
  EXPECT_FALSE(shards.refresh().value());
  EXPECT_EQ(shards.data().rows(), 10U);
}

}  // namespace
}  // namespace dunlin::svm
