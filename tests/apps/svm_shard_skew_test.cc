#include "apps/svm/shard_skew.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "apps/svm/checkpoint.h"
#include "apps/svm/program/data.h"
#include "tests/apps/svm_text.h"

namespace dunlin::svm {
namespace {

using By = ShardSkew::By;
using ::testing::ElementsAre;

constexpr GeneratorOptions kSet{.rows = 503, .features = 400, .nonzeros_per_row = 10};

std::vector<Dataset> shards_of(const Dataset& whole, const ShardSkew& skew, std::uint32_t ranks) {
  std::vector<Dataset> shards;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    shards.push_back(skewed_shard(whole, skew, {rank, ranks}));
  return shards;
}

double positive_share(const Dataset& data) {
  return static_cast<double>(std::ranges::count(data.labels, 1.0F)) /
         static_cast<double>(data.rows());
}

// For rows whose strongest feature is unique.
std::uint32_t strongest_feature(const Row& row) {
  const auto place =
      std::ranges::max_element(row.values, {}, [](float value) { return std::abs(value); });
  return row.indices[static_cast<std::size_t>(place - row.values.begin())];
}

double mean_feature(const Dataset& data) {
  double sum = 0;
  for (std::size_t i = 0; i < data.rows(); ++i) sum += strongest_feature(data.row(i));
  return sum / static_cast<double>(data.rows());
}

// How far the shards are from the whole set, by a figure of a set: the mean distance.
double spread(const Dataset& whole, const ShardSkew& skew, double (*figure)(const Dataset&)) {
  double sum = 0;
  for (const Dataset& shard : shards_of(whole, skew, 8))
    sum += std::abs(figure(shard) - figure(whole));
  return sum / 8;
}

TEST(ShardSkew, EachRowFallsToOneShardAndShardsAreAsLargeAsWithoutSkew) {
  const Dataset whole = generate({.rows = 101, .features = 400, .nonzeros_per_row = 10}).value();
  for (const By by : {By::kNone, By::kLabel, By::kFeature}) {
    for (const double degree : {0.0, 0.3, 0.9, 1.0}) {
      for (const std::uint32_t ranks : {1U, 2U, 7U, 25U, 101U, 120U}) {
        const ShardSkew skew{by, degree};
        SCOPED_TRACE(to_string(skew) + " " + std::to_string(ranks));
        std::vector<std::uint64_t> numbers;
        std::vector<std::size_t> sizes;
        for (const Dataset& shard : shards_of(whole, skew, ranks)) {
          EXPECT_TRUE(std::ranges::is_sorted(shard.numbers));
          EXPECT_EQ(shard.numbers.size(), shard.rows());
          for (std::size_t i = 0; i < shard.rows(); ++i)
            EXPECT_TRUE(are_same(shard.row(i), whole.row(shard.numbers[i])));
          numbers.insert(numbers.end(), shard.numbers.begin(), shard.numbers.end());
          sizes.push_back(shard.rows());
        }
        std::ranges::sort(numbers);
        EXPECT_EQ(numbers, whole.numbers);
        std::vector<std::size_t> without_skew(ranks);
        for (const std::uint64_t number : whole.numbers) ++without_skew[number % ranks];
        EXPECT_EQ(sizes, without_skew);
      }
    }
  }
}

TEST(ShardSkew, WithoutSkewRowsAreDealtInTurns) {
  const Dataset whole = generate(kSet).value();
  for (const ShardSkew skew : {ShardSkew{}, ShardSkew{By::kLabel, 0}, ShardSkew{By::kFeature, 0}}) {
    EXPECT_TRUE(skew.is_none());
    expect_dealt_from(whole, shards_of(whole, skew, 7));
  }
}

TEST(ShardSkew, AllShardsButOneHaveOneClass) {
  const Dataset whole = generate(kSet).value();
  std::vector<double> shares;
  for (const Dataset& shard : shards_of(whole, {By::kLabel}, 8))
    shares.push_back(positive_share(shard));
  EXPECT_TRUE(std::ranges::is_sorted(shares));
  EXPECT_EQ(shares.front(), 0);
  EXPECT_EQ(shares.back(), 1);
  EXPECT_LE(std::ranges::count_if(shares, [](double share) { return share > 0 && share < 1; }), 1);
}

TEST(ShardSkew, ShardsHaveDifferentStrongestFeatures) {
  const Dataset whole = generate(kSet).value();
  std::uint32_t before = 0;
  for (const Dataset& shard : shards_of(whole, {By::kFeature}, 8)) {
    std::uint32_t last = 0;
    for (std::size_t i = 0; i < shard.rows(); ++i) {
      const std::uint32_t feature = strongest_feature(shard.row(i));
      EXPECT_GE(feature, before);
      last = std::max(last, feature);
    }
    before = last;
  }
}

TEST(ShardSkew, GrowsWithItsDegree) {
  const Dataset whole = generate(kSet).value();
  double label = spread(whole, {}, positive_share);
  double feature = spread(whole, {}, mean_feature);
  for (const double degree : {0.3, 0.6, 1.0}) {
    const double more_label = spread(whole, {By::kLabel, degree}, positive_share);
    const double more_feature = spread(whole, {By::kFeature, degree}, mean_feature);
    EXPECT_GT(more_label, 1.2 * label) << degree;
    EXPECT_GT(more_feature, 1.2 * feature) << degree;
    label = more_label;
    feature = more_feature;
  }
}

TEST(ShardSkew, TheStrongestFeatureIsTheFirstOfTheLargestMagnitude) {
  Dataset data;
  data.features = 9;
  const auto add = [&](const std::vector<std::uint32_t>& indices,
                       const std::vector<float>& values) {
    data.indices.insert(data.indices.end(), indices.begin(), indices.end());
    data.values.insert(data.values.end(), values.begin(), values.end());
    data.row_begin.push_back(data.indices.size());
    data.labels.push_back(1);
    data.numbers.push_back(data.total_rows++);
  };
  add({}, {});
  add({3, 8}, {1, -2});
  add({1, 4, 7}, {1, 3, -3});
  add({5}, {0});
  add({2, 6}, {-1, 1});
  std::vector<std::uint64_t> order;
  for (const Dataset& shard : shards_of(data, {By::kFeature}, 5))
    order.push_back(shard.numbers.front());
  EXPECT_THAT(order, ElementsAre(4, 2, 3, 1, 0));
}

TEST(ShardSkew, ShardsKeepWhatBelongsToTheWholeSetAndTheirDigestsAddUp) {
  const Dataset whole = generate(kSet).value();
  const Digest digest = digest_of(whole);
  for (const By by : {By::kLabel, By::kFeature}) {
    Digest sum{};
    for (const Dataset& shard : shards_of(whole, {by, 0.7}, 7)) {
      EXPECT_EQ(shard.features, whole.features);
      EXPECT_EQ(shard.total_rows, whole.total_rows);
      EXPECT_EQ(shard.whole, whole.whole);
      sum = sum_of(sum, digest_of(shard));
    }
    EXPECT_EQ(sum, digest);
  }
}

TEST(ShardSkew, TheProgramReadsSkewedShards) {
  Options options;
  options.is_generated = true;
  options.generate = kSet;
  options.shard_skew = {By::kFeature, 0.5};
  expect_same(load_shard(options, {2, 3}).value(),
              skewed_shard(generate(kSet).value(), options.shard_skew, {2, 3}));
  expect_same(load_evaluation_data(options).value().train, generate(kSet).value());
}

TEST(ShardSkew, IsReadFromTextAndWritten) {
  EXPECT_EQ(*parse_shard_skew("none"), ShardSkew{});
  EXPECT_EQ(*parse_shard_skew("label"), (ShardSkew{By::kLabel, 1}));
  EXPECT_EQ(*parse_shard_skew("feature:0.25"), (ShardSkew{By::kFeature, 0.25}));
  for (const char* const text : {"none", "label", "feature", "label:0", "feature:0.25"})
    EXPECT_EQ(to_string(*parse_shard_skew(text)), text);
  for (const char* const text : {"", ":", "lable", "none:0.5", "label:", "label:1.1", "label:-0.1",
                                 "label:nan", "label:0.5x", "feature:0.5:1", "label 0.5"}) {
    EXPECT_EQ(parse_shard_skew(text).status().message(),
              "'" + std::string(text) +
                  "' is not none, label, feature, label:DEGREE or feature:DEGREE with a degree "
                  "from 0 to 1");
  }
}

}  // namespace
}  // namespace dunlin::svm
