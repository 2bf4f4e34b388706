// The parts of dunlin-perf that need no job: percentiles, the length of chunks, agreement of two
// sides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "tools/dunlin-perf/benchmarks/pattern.h"
#include "tools/dunlin-perf/benchmarks/plan.h"
#include "tools/dunlin-perf/job/courtesy.h"
#include "tools/dunlin-perf/options/endpoints.h"
#include "tools/dunlin-perf/options/options.h"
#include "tools/dunlin-perf/report/histogram.h"

namespace dunlin::perf {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A yield takes as long as is set.
class YieldClock final : public Clock {
 public:
  TimePoint now() const override { return now_ += yield_ / 2; }
  mutable TimePoint now_{std::chrono::seconds(1)};
  Duration yield_{};
};

TEST(Courtesy, LooksNowAndThenAndGivesWayWhileSomethingElseWantsTheCore) {
  YieldClock clock;
  Courtesy courtesy(clock);
  clock.yield_ = 1us;
  for (long polls = 1; polls <= 1 << 12; ++polls) courtesy.pause(polls);
  EXPECT_FALSE(courtesy.shares_core());
  EXPECT_EQ(clock.now_ - TimePoint(1s), 4 * 2 * clock.yield_ / 2)
      << "it looks at every 1024th poll";

  clock.yield_ = 2 * 20us;
  courtesy.pause(1);
  EXPECT_FALSE(courtesy.shares_core());
  courtesy.pause(1 << 10);
  EXPECT_TRUE(courtesy.shares_core());
  clock.yield_ = 1us;
  courtesy.pause(1);
  EXPECT_TRUE(courtesy.shares_core());
  clock.now_ += 100ms;
  courtesy.pause(1);
  EXPECT_FALSE(courtesy.shares_core());
}

TEST(Histogram, PercentilesAreThoseOfTheSamples) {
  std::mt19937 random(7);
  std::lognormal_distribution<double> latency(6, 2);
  Histogram histogram;
  std::vector<double> samples;
  for (int i = 0; i < 10'000; ++i) {
    samples.push_back(latency(random));
    histogram.add(samples.back());
  }
  std::ranges::sort(samples);
  const Summary summary = histogram.summary(0.5);
  const auto expect_near = [&](double told, double share) {
    const double exact = samples[static_cast<std::size_t>(std::lround(share * 9'999))] / 2e3;
    EXPECT_NEAR(told, exact, exact * 0.001) << share;
  };
  expect_near(summary.p50_us, 0.5);
  expect_near(summary.p90_us, 0.9);
  expect_near(summary.p99_us, 0.99);
  expect_near(summary.p999_us, 0.999);
  EXPECT_DOUBLE_EQ(summary.max_us, samples.back() / 2e3);
  EXPECT_DOUBLE_EQ(summary.min_us, samples.front() / 2e3);
}

TEST(Histogram, BucketsHoldWhatLiesBetweenTheirBounds) {
  Histogram histogram;
  for (const double ns : {1000.0, 1023.0, 1024.0, 1279.0, 1280.0, 5e9}) histogram.add(ns);
  const auto buckets = histogram.buckets();
  ASSERT_EQ(buckets.size(), 4U);
  EXPECT_DOUBLE_EQ(buckets[1].from_us, 1.024);
  EXPECT_DOUBLE_EQ(buckets[1].to_us, 1.28);
  EXPECT_EQ(buckets[0].count, 2U);
  EXPECT_EQ(buckets[1].count, 2U);
  EXPECT_EQ(buckets[2].count, 1U);
  EXPECT_GT(buckets[3].to_us, 5e6);
}

TEST(Histogram, TakesAnything) {
  Histogram histogram;
  EXPECT_EQ(histogram.summary().p50_us, 0);
  EXPECT_THAT(histogram.buckets(), IsEmpty());
  for (const double ns : {0.0, 1e-9, 1e30}) histogram.add(ns);
  EXPECT_EQ(histogram.count(), 3U);
  EXPECT_EQ(histogram.summary().min_us, 0);
  EXPECT_EQ(histogram.buckets().size(), 2U);
}

TEST(Histogram, PairsAddUp) {
  Histogram one;
  Histogram other;
  one.add(100);
  other.add(100);
  other.add(9000);
  const auto merged = merge({one.buckets(), other.buckets()});
  ASSERT_EQ(merged.size(), 2U);
  EXPECT_EQ(merged[0].count, 2U);
  EXPECT_EQ(merged[1].count, 1U);
}

TEST(Sweep, GoesByPowersOfFourAndEndsAtTheLargest) {
  using Sizes = std::vector<std::size_t>;
  EXPECT_EQ(sweep(8, 32), (Sizes{8, 32}));
  EXPECT_EQ(sweep(8, 100), (Sizes{8, 32, 100}));
  EXPECT_EQ(sweep(0, 9), (Sizes{0, 8, 9}));
  EXPECT_EQ(sweep(7, 7), (Sizes{7}));
  EXPECT_EQ(sweep(8, 4 << 20).back(), std::size_t{4} << 20);
}

TEST(Pacer, KeepsToTheNumber) {
  Shared options;
  for (const std::uint64_t iterations : {1U, 19U, 50U, 12'345U, 100'000'000U}) {
    options.iterations = iterations;
    Pacer pacer(plan_for(8, options), 1us);
    std::uint64_t sum = 0;
    while (const std::uint64_t count = pacer.next(TimePoint{})) {
      EXPECT_LE(count, std::uint64_t{1} << 20);
      sum += count;
    }
    EXPECT_EQ(sum, iterations);
    EXPECT_EQ(pacer.done(), iterations);
  }
}

// Runs a pacer in virtual time; returns when it ended.
Duration run(Duration duration, Duration expected, Duration real, int& chunks) {
  Shared options;
  options.duration = duration;
  Pacer pacer(plan_for(8, options), expected);
  TimePoint now{};
  chunks = 0;
  while (const std::uint64_t count = pacer.next(now)) {
    now += real * static_cast<std::int64_t>(count);
    ++chunks;
  }
  return now - TimePoint{};
}

TEST(Pacer, KeepsToTheTimeWhateverTheWarmUpSaid) {
  int chunks = 0;
  for (const Duration expected : {Duration(0), Duration(1us), Duration(10us), Duration(1ms)}) {
    for (const Duration duration : {Duration(100ms), Duration(1s), Duration(60s)}) {
      const Duration took = run(duration, expected, 2us, chunks);
      EXPECT_GE(took, duration);
      EXPECT_LE(took, duration + 2us * (1 << 20));
      EXPECT_GE(chunks, expected == Duration(0) ? 1 : 3);
      EXPECT_LE(chunks, 1'000);
    }
  }
  EXPECT_EQ(run(1s, 1ms, 3s, chunks),
            Duration(50 * 3s));                      // the first chunk has the expected length
  EXPECT_EQ(run(1s, 3s, 3s, chunks), Duration(3s));  // there is one repetition at least
}

TEST(Pattern, IsEncodedAsTheTypesAre) {
  using collective::DataType;
  EXPECT_EQ(encode(DataType::kInt8, -1) & 0xff, 0xffU);
  EXPECT_EQ(encode(DataType::kFloat16, 0), 0U);
  EXPECT_EQ(encode(DataType::kFloat16, 1), 0x3c00U);
  EXPECT_EQ(encode(DataType::kFloat16, -3), 0xc200U);
  EXPECT_EQ(encode(DataType::kFloat16, 2047), 0x67ffU);
  EXPECT_EQ(encode(DataType::kBfloat16, 3), 0x4040U);
  EXPECT_EQ(encode(DataType::kFloat32, 3), 0x40400000U);
  EXPECT_EQ(encode(DataType::kFloat64, -2), 0xc000000000000000U);
}

TEST(Pattern, ResultsAreThoseOfTheValues) {
  using collective::DataType;
  using collective::ReduceOp;
  for (const int ranks : {1, 2, 3, 8}) {
    for (std::uint64_t index = 0; index < 100; ++index) {
      const auto value = [&](ReduceOp op, int rank) {
        return pattern_value(op, rank, ranks, index);
      };
      std::int64_t sum = 0;
      std::int64_t total = 0;  // for averages, a multiple of the number of ranks
      std::int64_t product = 1;
      for (int rank = 0; rank < ranks; ++rank) {
        sum += value(ReduceOp::kSum, rank);
        total += value(ReduceOp::kAverage, rank);
        product *= value(ReduceOp::kProduct, rank);
      }
      EXPECT_EQ(pattern_result({DataType::kFloat32, ReduceOp::kSum}, ranks, index), sum);
      EXPECT_EQ(total % ranks, 0);
      EXPECT_EQ(pattern_result({DataType::kFloat32, ReduceOp::kAverage}, ranks, index),
                total / ranks);
      EXPECT_EQ(pattern_result({DataType::kFloat32, ReduceOp::kProduct}, ranks, index), product);
      EXPECT_LE(product, 9);
    }
  }
}

// Elements of another place or rank are noticed.
TEST(Pattern, ElementsOfAnotherPlaceDiffer) {
  using collective::ReduceOp;
  for (const int shift : {1, 2, 3, 16, 64, 1000, 1024}) {
    int same_place = 0;
    int same_rank = 0;
    for (std::uint64_t index = 0; index < 1000; ++index) {
      const auto own = pattern_value(ReduceOp::kSum, 1, 8, index);
      const auto behind = index + static_cast<std::uint64_t>(shift);
      same_place += own == pattern_value(ReduceOp::kSum, 1, 8, behind) ? 1 : 0;
      same_rank += own == pattern_value(ReduceOp::kSum, 2, 8, index) ? 1 : 0;
    }
    EXPECT_LT(same_place, 400) << shift;
    EXPECT_LT(same_rank, 400) << shift;
  }
}

TEST(Endpoints, HaveDefaults) {
  EXPECT_EQ(parse_listen("").value(), (bootstrap::Endpoint{"", kDefaultPort}));
  EXPECT_EQ(parse_listen("4711").value(), (bootstrap::Endpoint{"", 4711}));
  EXPECT_EQ(parse_listen("[::1]:4711").value(), (bootstrap::Endpoint{"::1", 4711}));
  EXPECT_EQ(parse_connect("node7").value(), (bootstrap::Endpoint{"node7", kDefaultPort}));
  EXPECT_EQ(parse_connect("node7:4711").value(), (bootstrap::Endpoint{"node7", 4711}));
  EXPECT_EQ(parse_connect("[fe80::1]").value(), (bootstrap::Endpoint{"fe80::1", kDefaultPort}));
  for (const char* wrong : {"node7", "node7:", ":", "99999", "-1", "::1"}) {
    EXPECT_FALSE(parse_listen(wrong).is_ok()) << wrong;
  }
  for (const char* wrong : {"", "node7:", "node7:0", "node7:x", "::1"}) {
    EXPECT_FALSE(parse_connect(wrong).is_ok()) << wrong;
  }
}

Shared some_options() {
  Shared options;
  options.bench = Bench::kAllReduce;
  options.sizes = {8, 64};
  options.memory = {MemoryChoice::Kind::kCuda, 3};
  options.duration = 1500ms;
  options.depth = 3;
  options.queue_pairs = 2;
  options.is_bidirectional = true;
  options.is_put = true;
  options.consistency.straggler = Straggler{1, 2.5};
  options.consistency.compute = 7us;
  options.collective = {"ring", "int8", "max", false, 3us};
  options.named = {"size", "depth"};
  return options;
}

TEST(Shared, ReachesTheOtherSideUnchanged) {
  const auto json = to_json(some_options());
  const auto read = shared_from_json(json);
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  EXPECT_EQ(to_json(*read), json);
  EXPECT_EQ(disagreement(some_options(), *read), "");
  EXPECT_EQ(read->memory, some_options().memory);
}

TEST(Shared, MemoryHasOneNameForEachChoice) {
  for (const char* text : {"host", "wrapped", "any", "cuda", "cuda:0", "cuda:11"})
    EXPECT_EQ(to_string(parse_memory(text).value()), text);
  EXPECT_EQ(parse_memory("registered").value(), MemoryChoice{});
  for (const char* text : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999999999"})
    EXPECT_EQ(parse_memory(text).status().code(), Code::kInvalidArgument) << text;
}

TEST(Shared, WrappedMemoryIsForPutsAndGets) {
  Shared options = some_options();
  options.memory = {MemoryChoice::Kind::kWrapped};
  options.bench = Bench::kPut;
  EXPECT_TRUE(shared_from_json(to_json(options)).is_ok());
  options.bench = Bench::kAllReduce;
  EXPECT_THAT(shared_from_json(to_json(options)).status().to_string(),
              HasSubstr("--memory wrapped is for put, put-notify and get"));
}

TEST(Shared, WhatNobodyCanHaveAskedForIsRefused) {
  const auto with = [](const char* name, const nlohmann::ordered_json& value) {
    auto json = to_json(some_options());
    json[name] = value;
    return shared_from_json(json).status();
  };
  EXPECT_THAT(with("benchmark", "teleport").to_string(), HasSubstr("no benchmark 'teleport'"));
  EXPECT_EQ(with("size", nlohmann::ordered_json::array()).code(), Code::kInvalidArgument);
  EXPECT_EQ(with("size", {std::uint64_t{1} << 60}).code(), Code::kInvalidArgument);
  EXPECT_EQ(with("size", "eight").code(), Code::kCorrupted);
  EXPECT_EQ(with("depth", 1 << 30).code(), Code::kInvalidArgument);
  EXPECT_EQ(with("memory", "disk").code(), Code::kInvalidArgument);
  EXPECT_THAT(with("benchmark", "mutex").to_string(), HasSubstr("cannot measure GPU memory"));
  EXPECT_EQ(with("qp-count", 9).code(), Code::kInvalidArgument);
  EXPECT_EQ(with("progress-every", "often").code(), Code::kCorrupted);
  EXPECT_EQ(with("iterations", 5).code(), Code::kInvalidArgument);  // there is a duration, too
  EXPECT_EQ(shared_from_json({}).status().code(), Code::kCorrupted);
}

TEST(Shared, OnlyWhatTheListenerNamesCanDisagree) {
  Shared client = some_options();
  client.depth = 5;
  client.duration = 1s;
  EXPECT_EQ(disagreement(some_options(), client), "--depth: 3 at the listener, 5 at the client");
  client.named.clear();
  EXPECT_THAT(disagreement(some_options(), client), HasSubstr("the default at the client"));
}

}  // namespace
}  // namespace dunlin::perf
