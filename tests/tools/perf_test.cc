// dunlin-perf as a user runs it: every benchmark over shm with few repetitions, its figures as
// JSON, its exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "tests/support/files.h"
#include "tests/support/paths.h"
#include "tests/tools/perf_command.h"

namespace dunlin::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

void expect_figures(const Json& line, const std::string& bench, std::size_t size) {
  EXPECT_EQ(line.at("bench"), bench);
  EXPECT_EQ(line.at("size"), size);
  EXPECT_EQ(line.at("transport"), "shm");
  EXPECT_GT(line.at("p50_us").get<double>(), 0);
  EXPECT_GE(line.at("p99_us").get<double>(), line.at("p50_us").get<double>());
  EXPECT_LE(line.at("min_us").get<double>(), line.at("p50_us").get<double>());
  EXPECT_GT(line.at("limit").at("p50_us").get<double>(), 0);
  EXPECT_GT(line.at("ratio").get<double>(), 0);
  for (const char* fact : {"wait", "host", "cpu", "commit", "time", "ranks"}) {
    EXPECT_TRUE(line.contains(fact)) << fact;
  }
}

TEST(DunlinPerf, PutMeasuresLatencyAndBandwidth) {
  const auto lines = measure(2, {"put", "--size", "0,8,1K,100000", "--iterations", "40"});
  ASSERT_THAT(lines, SizeIs(4));
  const std::size_t sizes[] = {0, 8, 1024, 100000};
  for (std::size_t i = 0; i < lines.size(); ++i) expect_figures(lines[i], "put", sizes[i]);
  EXPECT_GT(lines[3].at("gbytes_per_s").get<double>(), 0);
}

TEST(DunlinPerf, PutNotifyMeasuresRoundTrips) {
  const auto lines = measure(2, {"put-notify", "--size", "0,1,4K", "--iterations", "40"});
  ASSERT_THAT(lines, SizeIs(3));
  expect_figures(lines[0], "put-notify", 0);
  expect_figures(lines[1], "put-notify", 1);
  expect_figures(lines[2], "put-notify", 4096);
}

TEST(DunlinPerf, PutNotifyStreamsAtAnyDepth) {
  for (const char* depth : {"1", "3", "500"}) {
    const auto lines = measure(
        2, {"put-notify", "--size", "0,8,4K", "--iterations", "100", "--queue-depth", depth});
    ASSERT_THAT(lines, SizeIs(3));
    for (const Json& line : lines) EXPECT_GT(line.at("messages_per_s").get<double>(), 0);
    EXPECT_GT(lines[2].at("gbytes_per_s").get<double>(), 0);
    EXPECT_EQ(lines[0].at("depth"), std::stoi(depth));
  }
}

TEST(DunlinPerf, TheProgramsOwnMemory) {
  for (const char* bench : {"put", "put-notify", "get"}) {
    const auto lines =
        measure(2, {bench, "--memory", "wrapped", "--size", "8,64K", "--iterations", "40"});
    ASSERT_THAT(lines, SizeIs(2));
    expect_figures(lines[1], bench, 1 << 16);
    EXPECT_EQ(lines[1].at("memory"), "wrapped");
  }
}

TEST(DunlinPerf, PutLatencyMeasuresRoundTrips) {
  // More repetitions than a byte can count.
  const auto lines = measure(2, {"put-latency", "--size", "1,8,1M", "--iterations", "600"});
  ASSERT_THAT(lines, SizeIs(3));
  expect_figures(lines[0], "put-latency", 1);
  expect_figures(lines[2], "put-latency", 1 << 20);
  EXPECT_GT(lines[0].at("round_trips_per_s").get<double>(), 0);
  EXPECT_TRUE(lines[0].at("gbytes_per_s").is_null());
}

TEST(DunlinPerf, GetReadsAndAtomicAdds) {
  const auto gets = measure(4, {"get", "--size", "0,8,1M", "--iterations", "300"});
  ASSERT_THAT(gets, SizeIs(3));
  expect_figures(gets[1], "get", 8);
  expect_figures(gets[2], "get", 1 << 20);
  EXPECT_GT(gets[2].at("gbytes_per_s").get<double>(), 0);
  const auto atomics = measure(2, {"atomic", "--iterations", "1000", "--queue-depth", "3"});
  ASSERT_THAT(atomics, SizeIs(1));
  expect_figures(atomics[0], "atomic", 8);
  EXPECT_GT(atomics[0].at("messages_per_s").get<double>(), 0);
}

TEST(DunlinPerf, PutStreamsBothWays) {
  const auto lines =
      measure(4, {"put", "--size", "0,8,64K", "--iterations", "500", "--bidirectional"});
  ASSERT_THAT(lines, SizeIs(3));
  expect_figures(lines[1], "put", 8);
  EXPECT_EQ(lines[1].at("pairs"), 2);
  EXPECT_EQ(lines[1].at("bidirectional"), true);
  EXPECT_GT(lines[2].at("gbytes_per_s").get<double>(), 0);
}

TEST(DunlinPerf, TheHistogramHoldsEverySample) {
  for (const std::string bench : {"put", "put-latency", "put-notify", "notify", "get", "atomic",
                                  "channel", "barrier", "mutex", "window"}) {
    std::vector<std::string> arguments{bench, "--iterations", "333", "--report-histogram"};
    const bool has_sizes =
        bench != "notify" && bench != "atomic" && bench != "barrier" && bench != "mutex";
    if (has_sizes) arguments.insert(arguments.end(), {"--size", "8"});
    const auto lines = measure(2, arguments);
    ASSERT_THAT(lines, ::testing::Not(IsEmpty())) << bench;
    const Json& line = lines.back();
    EXPECT_EQ(line.at("iterations"), 333) << bench;
    EXPECT_EQ(line.at("samples"), 333) << bench;
    std::uint64_t sum = 0;
    double last = 0;
    for (const Json& bucket : line.at("histogram")) {
      sum += bucket.at("count").get<std::uint64_t>();
      EXPECT_LE(last, bucket.at("from_us").get<double>());
      last = bucket.at("to_us");
      EXPECT_LT(bucket.at("from_us").get<double>(), last);
    }
    EXPECT_EQ(sum, 333U) << bench;
    EXPECT_LE(line.at("p50_us"), line.at("p90_us")) << bench;
    EXPECT_LE(line.at("p99_us"), line.at("p99.9_us")) << bench;
    EXPECT_LE(line.at("p99.9_us"), line.at("max_us")) << bench;
    EXPECT_LT(line.at("max_us").get<double>(), last) << bench;
  }
  EXPECT_TRUE(measure(2, {"notify", "--iterations", "40"})[0].at("histogram").is_null());
}

TEST(DunlinPerf, TheHistogramIsPrinted) {
  const CommandResult result =
      perf(4, {"put", "--size", "8", "--iterations", "50", "--report-histogram"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("100 samples, us: p50 "));  // of two pairs
  EXPECT_THAT(result.out, HasSubstr("##########"));
}

TEST(DunlinPerf, ADurationEndsInTime) {
  const std::vector<std::vector<std::string>> commands = {
      {"put", "--size", "8,1M"},          {"put", "--size", "8,1M", "--bidirectional"},
      {"put-latency", "--size", "8,64K"}, {"put-notify", "--size", "8,64K"},
      {"get", "--size", "8,1M"},          {"atomic"},
      {"channel", "--size", "8,64K"},     {"barrier"},
      {"window", "--size", "8,64K"},      {"mutex"}};
  for (std::vector<std::string> arguments : commands) {
    arguments.insert(arguments.end(), {"--duration", "0.2"});
    const auto began = std::chrono::steady_clock::now();
    const auto lines = measure(2, arguments);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    ASSERT_THAT(lines, ::testing::Not(IsEmpty())) << arguments[0];
    const double asked = 0.2 * static_cast<double>(lines.size());
    EXPECT_GE(took.count(), asked) << arguments[0];
    EXPECT_LT(took.count(), asked + 60) << arguments[0];  // start-up, warm-up, a busy host
    for (const Json& line : lines) {
      EXPECT_EQ(line.at("duration_s"), 0.2);
      EXPECT_GT(line.at("iterations"), 0);
    }
  }
}

TEST(DunlinPerf, NotifyMeasuresRoundTrips) {
  const auto lines = measure(2, {"notify", "--iterations", "40"});
  ASSERT_THAT(lines, SizeIs(1));
  expect_figures(lines[0], "notify", 0);
}

TEST(DunlinPerf, ChannelMeasuresInlineAndSlotMessages) {
  const auto lines =
      measure(2, {"channel", "--size", "0,40,41,4K", "--iterations", "60", "--depth", "3"});
  ASSERT_THAT(lines, SizeIs(4));
  expect_figures(lines[1], "channel", 40);
  expect_figures(lines[2], "channel", 41);
  EXPECT_GT(lines[3].at("messages_per_s").get<double>(), 0);
  EXPECT_EQ(lines[3].at("depth"), 3);
}

TEST(DunlinPerf, ChannelKeepsInlineMessagesOfEverySize) {
  std::string sizes = "0";
  for (int size = 1; size <= 41; ++size) sizes += "," + std::to_string(size);
  EXPECT_THAT(measure(2, {"channel", "--size", sizes, "--iterations", "20"}), SizeIs(42));
}

TEST(DunlinPerf, ChannelOfDepthOneStillMoves) {
  EXPECT_THAT(measure(2, {"channel", "--size", "8,64", "--iterations", "40", "--depth", "1"}),
              SizeIs(2));
}

TEST(DunlinPerf, MoreRanksThanCoresFormPairs) {
  const auto lines = measure(6, {"channel", "--size", "8", "--iterations", "40"});
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(lines[0].at("pairs"), 3);
  EXPECT_GT(lines[0].at("round_trips_per_s").get<double>(), 0);
}

TEST(DunlinPerf, BarrierTakesAnyNumberOfRanks) {
  const auto lines = measure(3, {"barrier", "--iterations", "40"});
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(lines[0].at("ranks"), 3);
  EXPECT_GT(lines[0].at("p50_us").get<double>(), 0);
}

TEST(DunlinPerf, MutexTakesAnyNumberOfRanks) {
  for (const int ranks : {2, 3}) {
    const auto lines = measure(ranks, {"mutex", "--iterations", "200"});
    ASSERT_THAT(lines, SizeIs(1));
    EXPECT_EQ(lines[0].at("ranks"), ranks);
    EXPECT_GT(lines[0].at("p50_us").get<double>(), 0);
    EXPECT_GT(lines[0].at("messages_per_s").get<double>(), 0);
    EXPECT_EQ(lines[0].at("turns"), 200 * ranks);
    EXPECT_GE(lines[0].at("turn_gap_p50"), 1);
    EXPECT_LE(lines[0].at("turn_gap_p99"), lines[0].at("turn_gap_max"));
  }
}

TEST(DunlinPerf, WindowMeasuresDeposits) {
  const auto lines = measure(4, {"window", "--size", "0,8,1M", "--iterations", "100"});
  ASSERT_THAT(lines, SizeIs(3));
  expect_figures(lines[1], "window", 8);
  expect_figures(lines[2], "window", 1 << 20);
  EXPECT_GT(lines[2].at("gbytes_per_s").get<double>(), 0);
  const auto puts = measure(2, {"window", "--put", "--size", "1K", "--iterations", "100"});
  ASSERT_THAT(puts, SizeIs(1));
  expect_figures(puts[0], "window", 1 << 10);
  EXPECT_TRUE(puts[0].at("put").get<bool>());
}

TEST(DunlinPerf, ConsistencyOfNotifyAckIsComplete) {
  const auto lines =
      measure(4, {"consistency", "--count", "1000", "--reduces", "200", "--straggler", "1:3"});
  ASSERT_THAT(lines, SizeIs(3));
  const Json& notify_ack = lines[0];
  EXPECT_EQ(notify_ack.at("sync"), "notify-ack");
  EXPECT_EQ(notify_ack.at("by_inputs"), Json({0, 0, 0, 800}));
  EXPECT_EQ(notify_ack.at("complete"), 800);
  EXPECT_EQ(notify_ack.at("torn_inputs"), 0);
  EXPECT_EQ(notify_ack.at("wrong_content"), 0);
  for (const Json& line : lines) EXPECT_EQ(line.at("reduces"), 800) << line;
}

TEST(DunlinPerf, ConsistencyRunsOnSparseGraphs) {
  const auto lines = measure(4, {"consistency", "--graph", "ring", "--sync", "notify-ack",
                                 "--count", "10", "--reduces", "50", "--compute", "5us"});
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(lines[0].at("complete"), 200);
}

TEST(DunlinPerf, TheSweepEndsWithItsLargestSize) {
  std::vector<int> sizes;
  for (const Json& line :
       measure(2, {"put-notify", "--iterations", "20", "--min-size", "2", "--max-size", "100"}))
    sizes.push_back(line.at("size"));
  EXPECT_THAT(sizes, ::testing::ElementsAre(2, 8, 32, 100));
}

TEST(DunlinPerf, RowsFitAHundredColumns) {
  const CommandResult result =
      perf(2, {"put-notify", "--iterations", "20", "--size", "8,1M,16M", "--no-check"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const std::string& line : sorted_lines(result.out)) {
    if (line.find('|') == std::string::npos) continue;
    EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST(DunlinPerf, OnlySharedMemoryIsItsOwnLimit) {
  if (HAVE_UCX == 0) GTEST_SKIP() << "no ucx in this build";
  for (const std::string bench : {"put", "put-notify", "get"}) {
    const auto lines =
        measure(2, {bench, "--iterations", "20", "--size", "8", "--transport", "ucx"});
    ASSERT_THAT(lines, SizeIs(1));
    EXPECT_TRUE(lines[0].at("limit").is_null()) << bench;
    EXPECT_TRUE(lines[0].at("ratio").is_null()) << bench;
    EXPECT_TRUE(lines[0].at("limit_gbytes_per_s").is_null()) << bench;
  }
}

TEST(DunlinPerf, PrintsATableAndWritesJsonToAFile) {
  const std::string path = ::testing::TempDir() + "perf_test.json";
  const CommandResult result = perf(2, {"notify", "--iterations", "40", "--json-out", path});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("ping-pong"));
  EXPECT_THAT(json_lines(content_of(path)), SizeIs(1));
}

TEST(DunlinPerf, OneRankIsRefused) {
  const CommandResult result =
      run_command({program("dunlin-perf"), "put"}, {{"DUNLIN_TRANSPORTS", "shm"}});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("dunlin-run -n 2 dunlin-perf put"));
}

TEST(DunlinPerf, WrongUsageIsReported) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"put", "--size", "many"},
      {"put", "--min-size", "64", "--max-size", "8"},
      {"teleport"},
      {"put", "--duration", "1", "--iterations", "5"},
      {"put", "--duration", "0"},
      {"put", "--queue-depth", "0"},
      {"put", "--warmup", "0"},
      {"put", "--size", "200T"},
      {"straggler-ring", "--duration", "1"},
      {"straggler-ring", "--no-check"},
      {"tune", "--iterations", "5"},
      {"put-latency", "--size", "0,8"},
      {"put-latency", "--min-size", "0"},
      {"put-notify", "--bidirectional"},
      {"put", "--listen", "--connect", "localhost"},
      {"put", "--listen", "70000"},
      {"put", "--listen", "127.0.0.1"},
      {"put", "--listen", "--json"},
      {"put", "--connect", "::1"},
      {"put", "--connect", "localhost:0"},
      {"put", "--connect"},
      {"put", "--keep"},
      {"--connect", "localhost"},
      {"consistency", "--straggler", "1:fast"},
      {"consistency", "--sync", "hope"}};
  for (std::vector<std::string> arguments : wrong) {
    arguments.insert(arguments.begin(), program("dunlin-perf"));
    const CommandResult result = run_command(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, ::testing::Not(IsEmpty()));
  }
  EXPECT_EQ(run_command({program("dunlin-perf"), "--help"}).exit_code, 0);
}

TEST(DunlinPerf, WrongSettingsOfTheJobAreReported) {
  const CommandResult straggler = perf(2, {"consistency", "--straggler", "5:2", "--reduces", "1"});
  EXPECT_EQ(straggler.exit_code, 2);
  EXPECT_THAT(straggler.err, HasSubstr("rank 5 in a job of 2"));
  const CommandResult transport = perf(2, {"notify", "--transport", "pigeon"});
  EXPECT_EQ(transport.exit_code, 2);
  EXPECT_THAT(transport.err, HasSubstr("pigeon"));
}

}  // namespace
}  // namespace dunlin::testing
