#include "apps/svm/program/shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

namespace dunlin::svm {
namespace {

using ::testing::ElementsAre;

TEST(ShareOut, NothingChangesWhileEachShardHasItsWorker) {
  const std::vector<Holding> all = {{0, {}}, {1, {}}, {2, {}}};
  EXPECT_EQ(share_out(3, all), all);
}

TEST(ShareOut, OrphansGoToThoseThatHaveTheFewest) {
  EXPECT_THAT(share_out(4, {{0, {}}, {3, {}}}), ElementsAre(Holding{0, {1}}, Holding{3, {2}}));
  EXPECT_THAT(share_out(4, {{0, {1}}, {3, {}}}), ElementsAre(Holding{0, {1}}, Holding{3, {2}}));
}

TEST(ShareOut, AnAdoptedShardIsGivenBackToANewcomer) {
  EXPECT_THAT(share_out(3, {{0, {1, 2}}, {2, {}}}), ElementsAre(Holding{0, {1}}, Holding{2, {}}));
}

// Whoever comes and goes, each shard has a worker, and only one if it is adopted.
TEST(ShareOut, NoShardIsLostOrAdoptedTwice) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    const auto shards = static_cast<std::uint32_t>(1 + random() % 6);
    std::vector<Holding> workers;
    for (std::uint32_t own = 0; own < shards; ++own) workers.push_back({own, {}});
    for (int turn = 0; turn < 20; ++turn) {
      if (workers.size() > 1 && random() % 2 == 0) {
        workers.erase(workers.begin() + static_cast<std::ptrdiff_t>(random() % workers.size()));
      } else {
        workers.push_back({static_cast<std::uint32_t>(random() % shards), {}});
      }
      workers = share_out(shards, workers);
      std::vector<int> owners(shards);
      std::vector<int> adopters(shards);
      for (const Holding& each : workers) {
        ++owners[each.own];
        EXPECT_TRUE(std::ranges::is_sorted(each.adopted));
        for (const std::uint32_t shard : each.adopted) ++adopters[shard];
      }
      for (std::uint32_t shard = 0; shard < shards; ++shard)
        EXPECT_EQ(adopters[shard], owners[shard] == 0 ? 1 : 0) << "seed " << seed;
    }
  }
}

Options generated() {
  Options options;
  options.is_generated = true;
  options.generate.rows = 30;
  options.generate.features = 10;
  return options;
}

// Waits for the thread that reads.
bool refresh(Shards& shards) {
  for (;;) {
    const auto changed = shards.refresh();
    EXPECT_TRUE(changed.is_ok()) << changed.status().to_string();
    if (!changed || *changed) return changed.is_ok();
    std::this_thread::yield();
  }
}

TEST(Shards, AdoptedRowsAreTrainedOnTogetherWithTheOwn) {
  const Options options = generated();
  Shards shards = Shards::load(options, 0, 3).value();
  const std::size_t own = shards.data().rows();
  EXPECT_EQ(own, 10U);
  shards.adopt({1, 2});
  ASSERT_TRUE(refresh(shards));
  EXPECT_EQ(shards.data().rows(), 30U);
  const Shards second = Shards::load(options, 1, 3).value();
  const Row expected = second.data().row(3);
  const Row found = shards.data().row(own + 3);
  EXPECT_EQ(found.label, expected.label);
  EXPECT_TRUE(std::ranges::equal(found.indices, expected.indices));
  EXPECT_TRUE(std::ranges::equal(found.values, expected.values));
  shards.adopt({});
  ASSERT_TRUE(refresh(shards));
  EXPECT_EQ(shards.data().rows(), own);
  EXPECT_FALSE(shards.refresh().value());
}

TEST(Shards, WhatIsWantedLastCounts) {
  const Options options = generated();
  Shards shards = Shards::load(options, 0, 3).value();
  shards.adopt({1});
  shards.adopt({1, 2});
  ASSERT_TRUE(refresh(shards));
  EXPECT_EQ(shards.data().rows(), 30U);
}

TEST(Shards, AShardThatCannotBeReadIsAnErrorOnce) {
  Options options = generated();
  Shards shards = Shards::load(options, 0, 3).value();
  options.is_generated = false;
  options.train = "/nowhere";
  shards.adopt({1});
  for (;;) {
    const auto changed = shards.refresh();
    if (!changed) break;
    EXPECT_FALSE(*changed);
    std::this_thread::yield();
  }
  EXPECT_FALSE(shards.refresh().value());
  EXPECT_EQ(shards.data().rows(), 10U);
}

}  // namespace
}  // namespace dunlin::svm
