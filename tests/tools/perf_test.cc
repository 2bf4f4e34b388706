// dunlin-perf as a user runs it: every benchmark over shm with few repetitions, its figures as
// JSON, its exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/command.h"

namespace dunlin::testing {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

CommandResult perf(int ranks, const std::vector<std::string>& arguments) {
  std::vector<std::string> command{DUNLIN_RUN, "--no-tag", "-n", std::to_string(ranks),
                                   DUNLIN_PERF};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_command(command, {{"DUNLIN_TRANSPORTS", "shm"}});
}

std::vector<Json> json_lines(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
  return lines;
}

// Runs a benchmark with --json -, which has to succeed.
std::vector<Json> measure(int ranks, std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--json", "-"});
  const CommandResult result = perf(ranks, arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json_lines(result.out);
}

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
                                 "--count", "10", "--reduces", "50", "--compute-us", "5"});
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(lines[0].at("complete"), 200);
}

TEST(DunlinPerf, PrintsATableAndWritesJsonToAFile) {
  const std::string path = ::testing::TempDir() + "perf_test.json";
  const CommandResult result = perf(2, {"notify", "--iterations", "40", "--json", path});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("ping-pong"));
  std::ifstream file(path);
  const std::string written{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(json_lines(written), SizeIs(1));
}

TEST(DunlinPerf, OneRankIsTold) {
  const CommandResult result = run_command({DUNLIN_PERF, "put"}, {{"DUNLIN_TRANSPORTS", "shm"}});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("dunlin-run -n 2 dunlin-perf put"));
}

TEST(DunlinPerf, WrongUsageIsTold) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"put", "--size", "many"},
      {"put", "--min-size", "64", "--max-size", "8"},
      {"teleport"},
      {"consistency", "--straggler", "1:fast"},
      {"consistency", "--sync", "hope"}};
  for (std::vector<std::string> arguments : wrong) {
    arguments.insert(arguments.begin(), DUNLIN_PERF);
    const CommandResult result = run_command(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, ::testing::Not(IsEmpty()));
  }
  EXPECT_EQ(run_command({DUNLIN_PERF, "--help"}).exit_code, 0);
}

TEST(DunlinPerf, WrongSettingsOfTheJobAreTold) {
  const CommandResult straggler = perf(2, {"consistency", "--straggler", "5:2", "--reduces", "1"});
  EXPECT_EQ(straggler.exit_code, 2);
  EXPECT_THAT(straggler.err, HasSubstr("rank 5 in a job of 2"));
  const CommandResult transport = perf(2, {"notify", "--transport", "pigeon"});
  EXPECT_EQ(transport.exit_code, 2);
  EXPECT_THAT(transport.err, HasSubstr("pigeon"));
}

}  // namespace
}  // namespace dunlin::testing
