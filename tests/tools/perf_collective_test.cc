// The collectives of dunlin-perf and their overlap with computation, as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/paths.h"
#include "tests/tools/perf_command.h"

namespace dunlin::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

void expect_figures(const Json& line, const std::string& bench) {
  EXPECT_EQ(line.at("bench"), bench);
  EXPECT_EQ(line.at("transport"), "shm");
  EXPECT_EQ(line.at("checked"), true);
  EXPECT_THAT(line.at("algorithm").get<std::string>(), Not(IsEmpty()));
  EXPECT_GT(line.at("p50_us").get<double>(), 0);
  EXPECT_LE(line.at("min_us"), line.at("p50_us"));
  EXPECT_LE(line.at("p50_us"), line.at("max_us"));
  for (const char* fact : {"wait", "host", "cpu", "commit", "time", "ranks", "type", "memory"}) {
    EXPECT_TRUE(line.contains(fact)) << fact;
  }
}

TEST(DunlinPerfCollectives, EveryAlgorithmIsMeasuredAtEverySize) {
  for (const std::string bench :
       {"all-reduce", "reduce-scatter", "all-gather", "broadcast", "all-to-all", "reduce"}) {
    const auto lines =
        measure(3, {bench, "--algorithm", "all", "--size", "1,1K,100000", "--iterations", "20"});
    std::set<std::pair<std::size_t, std::string>> rows;
    for (const Json& line : lines) {
      expect_figures(line, bench);
      const std::size_t size = line.at("size");
      // Sizes are rounded up to whole elements of every rank.
      const bool is_per_rank =
          bench.starts_with("all-g") || bench.ends_with("scatter") || bench == "all-to-all";
      EXPECT_EQ(size, line.at("count").get<std::size_t>() * (is_per_rank ? 12 : 4));
      EXPECT_GT(line.at("bus_gbytes_per_s").get<double>(), 0);
      rows.emplace(size, line.at("algorithm"));
    }
    EXPECT_EQ(rows.size(), lines.size()) << bench;
    EXPECT_GE(lines.size(), bench == "reduce" || bench == "broadcast" ? 3U : 6U) << bench;
    EXPECT_EQ(lines.size() % 3, 0U) << bench;
  }
}

TEST(DunlinPerfCollectives, TheBusCarriesItsShare) {
  const auto lines = measure(4, {"all-reduce", "--size", "64K", "--iterations", "20"});
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(lines[0].at("ranks"), 4);
  const double bandwidth = lines[0].at("gbytes_per_s");
  EXPECT_NEAR(lines[0].at("bus_gbytes_per_s").get<double>(), bandwidth * 1.5, bandwidth * 1e-9);
  EXPECT_NEAR(bandwidth, 65.536 / lines[0].at("p50_us").get<double>(), bandwidth * 1e-9);
}

TEST(DunlinPerfCollectives, EveryTypeAndOperationIsExact) {
  const std::pair<const char*, const char*> cases[] = {
      {"int8", "sum"},    {"uint8", "avg"},    {"int32", "prod"},  {"int64", "min"},
      {"float16", "avg"}, {"bfloat16", "sum"}, {"float32", "max"}, {"float64", "prod"}};
  for (const auto& [type, op] : cases) {
    const auto lines = measure(3, {"all-reduce", "--size", "1000,40000", "--iterations", "20",
                                   "--type", type, "--op", op});
    ASSERT_THAT(lines, SizeIs(2)) << type;
    EXPECT_EQ(lines[0].at("type"), type);
    EXPECT_EQ(lines[0].at("op"), op);
  }
}

TEST(DunlinPerfCollectives, AnyMemoryInAnyPlace) {
  for (const char* bench : {"all-reduce", "reduce-scatter", "all-gather", "reduce"}) {
    const auto lines = measure(
        2, {bench, "--size", "0,8,1M", "--iterations", "20", "--memory", "any", "--out-of-place"});
    ASSERT_THAT(lines, SizeIs(3)) << bench;
    EXPECT_EQ(lines[2].at("in_place"), false);
    EXPECT_EQ(lines[2].at("memory"), "any");
  }
  EXPECT_EQ(measure(2, {"broadcast", "--size", "8", "--iterations", "20"})[0].at("in_place"), true);
  EXPECT_EQ(measure(2, {"all-to-all", "--size", "8", "--iterations", "20"})[0].at("in_place"),
            false);
}

TEST(DunlinPerfCollectives, SizesThatAreRoundedToTheSameAreMeasuredOnce) {
  const auto lines = measure(3, {"all-gather", "--size", "1,4,12,13", "--iterations", "20"});
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[0].at("size"), 12);
  EXPECT_EQ(lines[1].at("size"), 24);
}

TEST(DunlinPerfCollectives, ByTimeAndPolled) {
  const auto lines =
      measure(2, {"all-reduce", "--size", "8", "--duration", "0.1", "--poll", "spin"});
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_GT(lines[0].at("iterations"), 0);
  EXPECT_EQ(lines[0].at("wait"), "spin");
}

TEST(DunlinPerfCollectives, OverlapTellsAllThreeTimes) {
  for (const char* every : {"0", "5"}) {
    const auto lines =
        measure(2, {"overlap", "--size", "8,64K", "--iterations", "40", "--progress-every", every});
    ASSERT_THAT(lines, SizeIs(2));
    for (const Json& line : lines) {
      expect_figures(line, "overlap");
      const double communicating = line.at("communicating_us");
      const double computing = line.at("computing_us");
      EXPECT_GT(communicating, 0);
      EXPECT_GT(computing, 0);
      EXPECT_GT(line.at("both_us").get<double>(), 0);
      EXPECT_EQ(line.at("progress_every_us"), std::stoi(every));
      EXPECT_TRUE(line.at("overlap_percent").is_number());
    }
  }
}

TEST(DunlinPerfCollectives, PartialBesideBothAllReduces) {
  for (const char* memory : {"registered", "any"}) {
    for (const auto& [size, first_group] : {std::pair("2", 2), std::pair("9", 3)}) {
      const auto lines = measure(3, {"partial", "--group-size", size, "--size", "8,64K,3M",
                                     "--iterations", "20", "--memory", memory});
      ASSERT_THAT(lines, SizeIs(3));
      for (const Json& line : lines) {
        EXPECT_EQ(line.at("bench"), "partial");
        EXPECT_EQ(line.at("checked"), true);
        EXPECT_EQ(line.at("group_size"), first_group);
        EXPECT_EQ(line.at("memory"), memory);
        EXPECT_GT(line.at("p50_us").get<double>(), 0);
        EXPECT_GT(line.at("group_all_reduce_us").get<double>(), 0);
        EXPECT_GT(line.at("all_reduce_us").get<double>(), 0);
      }
    }
  }
}

TEST(DunlinPerfCollectives, ManySmallTensorsFusedAndNot) {
  for (const char* poll : {"spin", "wait"}) {
    const auto lines =
        measure(3, {"neighbor-all-reduce", "--tensors", "40", "--size", "0,100,1K,100K", "--graph",
                    "complete", "--iterations", "20", "--poll", poll});
    ASSERT_THAT(lines, SizeIs(4));
    for (const Json& line : lines) {
      EXPECT_EQ(line.at("bench"), "neighbor-all-reduce");
      EXPECT_EQ(line.at("tensors"), 40);
      EXPECT_EQ(line.at("in_degree"), 2);
      EXPECT_GT(line.at("p50_us").get<double>(), 0);
      EXPECT_GT(line.at("unfused_us").get<double>(), 0);
      EXPECT_GT(line.at("gain").get<double>(), 0);
    }
    // 15 tensors of 1 KiB fill a message, and the first one of each round travels alone.
    EXPECT_DOUBLE_EQ(lines[1].at("parts_per_message"), 20);
    EXPECT_DOUBLE_EQ(lines[2].at("parts_per_message"), 10);
    // Large tensors are announced and requested in small messages, which may travel together.
    EXPECT_GE(lines[3].at("parts_per_message").get<double>(), 1);
  }
  const auto alone =
      measure(2, {"neighbor-all-reduce", "--tensors", "1", "--size", "8", "--iterations", "20"});
  EXPECT_FALSE(alone[0].contains("gain"));
}

TEST(DunlinPerfCollectives, GroupsHaveAsksAndSteps) {
  for (const int ranks : {2, 3}) {
    const auto lines =
        measure(ranks, {"groups", "--group-size", "3", "--size", "8,64K", "--iterations", "50"});
    ASSERT_THAT(lines, SizeIs(1 + 2 + 2 * 2));
    for (const Json& line : lines) EXPECT_EQ(line.at("bench"), "groups");
    EXPECT_EQ(lines[0].at("part"), "ask");
    EXPECT_EQ(lines[0].at("iterations"), 50);
    EXPECT_GT(lines[0].at("p50_us").get<double>(), 0);
    EXPECT_GE(lines[0].at("p99_us").get<double>(), lines[0].at("p50_us").get<double>());
    const std::vector<std::string> sources{"static", "smart"};
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(lines[1 + i].at("part"), "asks");
      EXPECT_EQ(lines[1 + i].at("source"), sources[i]);
      EXPECT_GT(lines[1 + i].at("asks_per_s").get<double>(), 0);
    }
    for (std::size_t i = 3; i < lines.size(); ++i) {
      const Json& line = lines[i];
      EXPECT_EQ(line.at("part"), "step");
      EXPECT_EQ(line.at("source"), sources[(i - 3) % 2]);
      EXPECT_EQ(line.at("size"), i < 5 ? 8 : 65'536);
      EXPECT_EQ(line.at("iterations"), 50);
      EXPECT_EQ(line.at("checked"), true);
      EXPECT_EQ(line.at("group_size"), ranks);
      EXPECT_GT(line.at("p50_us").get<double>(), 0);
      EXPECT_GT(line.at("partial_us").get<double>(), 0);
    }
  }
}

TEST(DunlinPerfCollectives, StragglerRingBesideThePlainOne) {
  const auto lines =
      measure(4, {"straggler-ring", "--step", "1", "--late-by", "0,20", "--iterations", "5"});
  ASSERT_THAT(lines, SizeIs(2));
  for (const Json& line : lines) {
    EXPECT_EQ(line.at("bench"), "straggler-ring");
    EXPECT_EQ(line.at("checked"), true);
    EXPECT_EQ(line.at("size"), 8192);
    EXPECT_EQ(line.at("iterations"), 5);
    // Three ranks process a chunk one after the other.
    const double late_by = line.at("extra_us");
    for (const char* ring : {"plain_scatter_us", "aware_scatter_us"})
      EXPECT_GE(line.at(ring).get<double>(), 2000 + late_by) << ring;
    EXPECT_GE(line.at("plain_us"), line.at("plain_scatter_us"));
  }
}

TEST(DunlinPerfCollectives, StragglerRingTakesSeveralSizes) {
  const auto lines = measure(2, {"straggler-ring", "--size", "8K,64K", "--step", "1", "--late-by",
                                 "0", "--iterations", "1"});
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[0].at("size"), 8 << 10);
  EXPECT_EQ(lines[1].at("size"), 64 << 10);
}

TEST(DunlinPerfCollectives, AStragglerThatMovesIsLateInEveryReduce) {
  const auto lines = measure(3, {"straggler-ring", "--step", "1", "--late-by", "20", "--iterations",
                                 "13", "--moves-every", "1"});
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(lines[0].at("moves_every"), 1);
  // Both medians have it, wherever it was.
  for (const char* ring : {"plain_scatter_us", "aware_scatter_us"})
    EXPECT_GE(lines[0].at(ring).get<double>(), 20'000) << ring;
}

TEST(DunlinPerfCollectives, ATableIsPrinted) {
  const CommandResult result = perf(2, {"all-reduce", "--size", "8", "--iterations", "20"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("over shm: all-reduce of 2 ranks, float32, in place"));
  EXPECT_THAT(result.out, HasSubstr("algorithm"));
}

TEST(DunlinPerfCollectives, WrongUsageIsTold) {
  const std::pair<std::vector<std::string>, const char*> wrong[] = {
      {{"all-reduce", "--algorithm", "rings"}, "rings"},
      {{"broadcast", "--algorithm", "halving-doubling"}, "halving-doubling"},
      {{"all-reduce", "--type", "float8"}, "float8"},
      {{"all-reduce", "--op", "mean"}, "mean"},
      {{"all-reduce", "--memory", "swap"}, "swap"},
      {{"broadcast", "--out-of-place"}, "out-of-place"},
      {{"all-to-all", "--in-place"}, "in-place"},
      {{"all-gather", "--op", "sum"}, "op"},
      {{"partial", "--group-size", "0"}, "group-size"},
      {{"neighbor-all-reduce", "--tensors", "0"}, "tensors"},
      {{"partial", "--type", "int32"}, "floating-point"},
      {{"groups", "--group-size", "1"}, "group-size"},
      {{"straggler-ring", "--alpha", "1"}, "alpha"},
      {{"straggler-ring", "--late-by", "-1"}, "late-by"},
      {{"overlap", "--algorithm", "all"}, "one algorithm at a time"},
      {{"overlap", "--progress-every", "-1"}, "progress-every"}};
  for (const auto& [arguments, told] : wrong) {
    const CommandResult result = perf(2, arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments[0] << " " << arguments[1];
    EXPECT_THAT(result.err, HasSubstr(told));
  }
  const CommandResult alone = run_command({program("dunlin-perf"), "all-reduce"});
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("all-reduce needs 2 ranks or more"));
}

}  // namespace
}  // namespace dunlin::testing
