// dunlin-sim as a user runs it: each protocol, its figures, failures, and wrong usage. The same
// command line gives the same run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/support/command.h"
#include "tests/support/files.h"
#include "tests/support/paths.h"
#include "tests/support/temp_folder.h"
#include "tests/tools/json_lines.h"

namespace dunlin::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

CommandResult sim(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), program("dunlin-sim"));
  return run_command(arguments);
}

// Returns its JSON lines. The program has to succeed.
std::vector<Json> simulate(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--json"});
  const CommandResult result = sim(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json_lines(result.out);
}

// The program sums whole numbers and checks them.
TEST(DunlinSim, ARingGoesAroundItsStraggler) {
  const std::vector<std::string> ring{
      "straggler-ring", "-n",  "6",           "--count", "6000", "--steps", "20",
      "--straggler",    "2:6", "--step-time", "3us"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), ring.begin(), ring.end());
    return simulate(more).at(0);
  };
  const Json plain = with({"--lateness", "never"});
  EXPECT_EQ(plain.at("timeouts"), 0);
  EXPECT_EQ(plain.at("skips"), 0);
  EXPECT_EQ(plain.at("steps_done"), 120);
  const Json fixed = with({"--lateness", "fixed", "--transfer", "3us", "--alpha", "1.5"});
  EXPECT_GT(fixed.at("timeouts"), 0);
  EXPECT_GT(fixed.at("skips"), 0);
  EXPECT_EQ(fixed.at("steps_done"), 120);
  EXPECT_EQ(sim({"straggler-ring", "--alpha", "1"}).exit_code, 2);
  EXPECT_EQ(sim({"straggler-ring", "--step-time", "3"}).exit_code, 2);
}

TEST(DunlinSim, ThePapersRingGainsAQuarter) {
  const auto lines = simulate({"straggler-ring", "--figures"});
  ASSERT_FALSE(lines.empty());
  const auto best = std::find_if(lines.begin(), lines.end(), [](const Json& line) {
    return line.at("figure") == "best" && line.at("slow_in") == "one step";
  });
  ASSERT_NE(best, lines.end());
  EXPECT_NEAR(best->at("gain_percent").get<double>(), 25.0, 0.01);
  EXPECT_EQ(best->at("paper_gain_percent"), 25.3);
}

// There are six rounds of one notification each.
TEST(DunlinSim, ABarrierTakesItsRounds) {
  const auto lines = simulate({"barrier", "-n", "64", "--latency", "3us", "--steps", "10"});
  ASSERT_THAT(lines, SizeIs(1));
  const Json& line = lines[0];
  EXPECT_EQ(line.at("what"), "barrier");
  EXPECT_DOUBLE_EQ(line.at("step_us").at("p50"), 18);
  EXPECT_DOUBLE_EQ(line.at("virtual_us"), 180);
  EXPECT_EQ(line.at("steps_done"), 640);
  EXPECT_EQ(line.at("messages"), 64 * 6 * 10);
  EXPECT_GT(line.at("real").at("events_per_s").get<double>(), 0);
  EXPECT_GT(line.at("real").at("memory_bytes").get<double>(), 0);
}

TEST(DunlinSim, AChannelFillsTheWire) {
  const auto lines = simulate({"channel", "-n", "4", "--size", "100000", "--latency", "2us",
                               "--bandwidth", "100Gb", "--steps", "100"});
  ASSERT_THAT(lines, SizeIs(1));
  // Two pairs of 12.5 GB/s, minus the time of the first message.
  EXPECT_NEAR(lines[0].at("gbytes_per_s").get<double>(), 25, 0.25);
  EXPECT_EQ(lines[0].at("depth"), 16);
}

TEST(DunlinSim, RanksOfAHostUseItsOwnLink) {
  const auto lines = simulate({"channel", "-n", "2", "--size", "1M", "--ranks-per-host", "2",
                               "--intra-bandwidth", "40GB", "--intra-latency", "100ns"});
  EXPECT_NEAR(lines.at(0).at("gbytes_per_s").get<double>(), 40, 0.4);
}

TEST(DunlinSim, AStragglerHoldsUpBspAndNotAsync) {
  const auto step_of = [](const std::string& sync) {
    const auto lines = simulate({"reduce", "-n", "8", "--count", "1000", "--sync", sync,
                                 "--compute", "1ms", "--straggler", "3:5"});
    return lines.at(0).at("step_us").at("p50").get<double>();
  };
  EXPECT_NEAR(step_of("bsp"), 5000, 100);
  EXPECT_NEAR(step_of("async"), 1000, 100);
}

TEST(DunlinSim, NotifyAckUsesEveryInput) {
  const auto lines = simulate({"reduce", "-n", "9", "--graph", "mesh:3x3", "--count", "500",
                               "--jitter", "exponential:20us", "--straggler", "0:3", "--straggler",
                               "4:2", "--compute", "50us"});
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(lines[0].at("whole_share"), 1);
  EXPECT_EQ(lines[0].at("stragglers").size(), 2U);
  EXPECT_EQ(lines[0].at("graph"), "mesh:3x3");
}

// A rank of a ring sends its vector to one neighbor. It announces it first, and has four slots
// there, so that the transfer takes one latency more than that of the bytes.
TEST(DunlinSim, NeighborAveragesTakeTheSameTimeWithAnyNumberOfRanks) {
  for (const char* ranks : {"16", "64"}) {
    const auto lines =
        simulate({"neighbor-all-reduce", "-n", ranks, "--graph", "ring", "--count", "256K",
                  "--latency", "50us", "--bandwidth", "3.125GB", "--steps", "20"});
    EXPECT_EQ(lines.at(0).at("graph"), "ring");
    EXPECT_NEAR(lines.at(0).at("step_us").at("p50").get<double>(), 435.5, 5) << ranks;
  }
}

TEST(DunlinSim, TheSameCommandLineGivesTheSameRun) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"reduce", "-n", "6", "--count", "300", "--hostile"},
        {"channel", "-n", "4", "--jitter", "uniform:5us"},
        {"neighbor-all-reduce", "-n", "6", "--count", "300", "--hostile"},
        {"barrier", "-n", "7", "--hostile"}}) {
    const auto run = [&](const std::string& seed) {
      auto with_seed = arguments;
      with_seed.insert(with_seed.end(), {"--seed", seed});
      Json line = simulate(with_seed).at(0);
      line.erase("real");
      return line;
    };
    EXPECT_EQ(run("5"), run("5"));
    EXPECT_NE(run("5").at("trace_hash"), run("6").at("trace_hash"));
  }
}

TEST(DunlinSim, ManySeedsOnAHostileNetworkHold) {
  for (const std::string sync : {"notify-ack", "bsp", "async"}) {
    EXPECT_THAT(simulate({"reduce", "-n", "5", "--count", "100", "--steps", "5", "--sync", sync,
                          "--hostile", "--seeds", "20"}),
                SizeIs(20));
  }
  EXPECT_THAT(simulate({"neighbor-all-reduce", "-n", "5", "--count", "100", "--steps", "5",
                        "--graph", "exponential", "--hostile", "--seeds", "20"}),
              SizeIs(20));
  const auto lines = simulate({"channel", "--hostile", "--seed", "11", "--seeds", "20"});
  ASSERT_THAT(lines, SizeIs(20));
  EXPECT_EQ(lines[19].at("seed"), 30);
}

TEST(DunlinSim, AKilledRankIsNoticedByWhoDependsOnIt) {
  const auto lines = simulate({"reduce", "-n", "8", "--count", "1000", "--kill", "3@100us",
                               "--loss-notice", "50us", "--steps", "1000"});
  const Json& loss = lines.at(0).at("loss_of_3");
  EXPECT_EQ(loss.at("ended"), 7);
  EXPECT_GE(loss.at("longest_us").get<double>(), 50);
  // The other pair continues.
  const auto pairs = simulate({"channel", "-n", "4", "--kill", "1@5us", "--steps", "100"});
  EXPECT_EQ(pairs.at(0).at("loss_of_1").at("ended"), 1);
  EXPECT_GE(pairs.at(0).at("steps_done").get<int>(), 200);
}

// The time of the formulas: 2 (N - 1) messages of a part each, N - 1 of which are added.
TEST(DunlinSim, ARingTakesWhatItsFormulaSays) {
  const auto lines =
      simulate({"all-reduce", "-n", "64", "--algorithm", "ring", "--size", "4M", "--latency", "3us",
                "--bandwidth", "10GB", "--reduce-bandwidth", "20GB", "--steps", "2"});
  const Json& line = lines.at(0);
  const double part_us = 65'536 / 10e3;
  const double wanted = 63 * (2 * (3 + part_us) + part_us / 2);
  EXPECT_EQ(line.at("is_phantom"), false);
  EXPECT_EQ(line.at("messages"), 64 * 126 * 2);
  ASSERT_THAT(line.at("by_step"), SizeIs(2));
  EXPECT_NEAR(line.at("by_step").at(0).at("max_us").get<double>(), wanted, 1);
  EXPECT_NEAR(line.at("virtual_us").get<double>(), 2 * wanted, 2);
  // Phantom memory takes the same time.
  const auto phantom =
      simulate({"all-reduce", "-n", "64", "--algorithm", "ring", "--size", "4M", "--latency", "3us",
                "--bandwidth", "10GB", "--reduce-bandwidth", "20GB", "--steps", "2", "--phantom"});
  EXPECT_EQ(phantom.at(0).at("trace_hash"), line.at("trace_hash"));
}

// Messages that a notification carries itself otherwise, among them.
TEST(DunlinSim, PhantomMemoryTakesVectorsOfEverySize) {
  for (const std::string_view size : {"4", "64", "1K"}) {
    const auto lines = simulate({"all-reduce", "-n", "8", "--size", std::string(size),
                                 "--ranks-per-host", "4", "--phantom"});
    EXPECT_EQ(lines.at(0).at("is_phantom"), true);
    EXPECT_EQ(lines.at(0).at("steps_done"), 8);
  }
}

// An all-reduce of `hosts` with `per_host` ranks each. Empty algorithm: what is chosen.
Json all_reduce_of(int hosts, int per_host, const std::string& size,
                   const std::vector<std::string>& network, const std::string& algorithm) {
  std::vector<std::string> arguments{"all-reduce",
                                     "-n",
                                     std::to_string(hosts * per_host),
                                     "--ranks-per-host",
                                     std::to_string(per_host),
                                     "--size",
                                     size,
                                     "--segment",
                                     "256K",
                                     "--reduce-bandwidth",
                                     "10GB",
                                     "--phantom"};
  arguments.insert(arguments.end(), network.begin(), network.end());
  if (!algorithm.empty()) arguments.insert(arguments.end(), {"--algorithm", algorithm});
  return simulate(arguments).at(0);
}

// Networks with a fast port for each rank, and with a slow or a fast one that the ranks of a host
// share.
TEST(DunlinSim, TheChosenAlgorithmIsAboutTheFastest) {
  const std::vector<std::vector<std::string>> networks{
      {"--latency", "2us", "--bandwidth", "12.5GB"},
      {"--latency", "15us", "--bandwidth", "1.25GB", "--shared-nic"},
      {"--latency", "2us", "--bandwidth", "12.5GB", "--shared-nic", "--intra-bandwidth", "10GB"}};
  for (const auto& network : networks) {
    for (const auto& [hosts, per_host] : std::vector<std::pair<int, int>>{
             {2, 2}, {2, 4}, {3, 4}, {4, 2}, {4, 4}, {8, 1}, {13, 1}, {8, 8}}) {
      for (const std::string size : {"4", "4K", "20K", "64K", "256K", "1M", "4M", "64M"}) {
        // With so many ranks, `direct` is the fastest only as its messages cost the CPU nothing
        // here.
        if (size == "4" && hosts * per_host > 16) continue;
        const Json chosen = all_reduce_of(hosts, per_host, size, network, "");
        const double took = chosen.at("virtual_us").get<double>();
        for (const std::string algorithm : {"direct", "recursive-doubling", "halving-doubling",
                                            "tree", "ring", "hierarchical", "torus-2d", "2d-tga"}) {
          const bool has_groups = per_host > 1;
          if (!has_groups && (algorithm == "hierarchical" || algorithm == "2d-tga")) continue;
          const Json other = all_reduce_of(hosts, per_host, size, network, algorithm);
          EXPECT_LE(took, 1.1 * other.at("virtual_us").get<double>())
              << hosts << " hosts of " << per_host << " ranks, " << size << ": "
              << chosen.at("algorithm") << " instead of " << algorithm;
        }
      }
    }
  }
}

// Every algorithm, on nodes that have mapped the memory of the others.
TEST(DunlinSim, CollectivesHoldOnAHostileNetwork) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> all{
      {"all-reduce",
       {"direct", "shared", "recursive-doubling", "halving-doubling", "tree", "ring",
        "hierarchical", "torus-2d", "mesh-2d", "2d-tga"}},
      {"reduce-to-root", {"tree", "shared"}},
      {"broadcast", {"tree", "shared"}},
      {"reduce-scatter", {"direct", "ring", "shared"}},
      {"all-gather", {"direct", "ring", "shared"}},
      {"all-to-all", {"pairwise", "shared"}}};
  for (const auto& [what, algorithms] : all) {
    for (const std::string& algorithm : algorithms) {
      for (const bool has_loss : {false, true}) {
        std::vector<std::string> arguments{what,
                                           "-n",
                                           "6",
                                           "--algorithm",
                                           algorithm,
                                           "--count",
                                           "700",
                                           "--groups",
                                           "2",
                                           "--ranks-per-host",
                                           "6",
                                           "--segment",
                                           "100",
                                           "--scratch",
                                           "50K",
                                           "--steps",
                                           "3",
                                           "--skew",
                                           "20us",
                                           "--hostile",
                                           "--seeds",
                                           "5",
                                           "--reduce-bandwidth",
                                           "1GB"};
        if (has_loss) arguments.insert(arguments.end(), {"--kill", "2@150us"});
        const auto lines = simulate(arguments);
        ASSERT_THAT(lines, SizeIs(5)) << what << ' ' << algorithm;
        for (const Json& line : lines) {
          EXPECT_EQ(line.at("algorithm"), algorithm);
          EXPECT_EQ(line.at("is_phantom"), false);
          EXPECT_LE(line.at("steps_done"), 18);
          EXPECT_TRUE(has_loss || line.at("steps_done") == 18);
        }
      }
    }
  }
}

TEST(DunlinSim, ThousandsOfRanksReduceWhatNoMemoryHolds) {
  const auto lines = simulate(
      {"all-reduce", "-n", "4096", "--algorithm", "2d-tga", "--groups", "64", "--size", "1G"});
  EXPECT_EQ(lines.at(0).at("is_phantom"), true);
  EXPECT_EQ(lines.at(0).at("steps_done"), 4096);
  EXPECT_EQ(lines.at(0).at("grid"), "8x8");
  EXPECT_LT(lines.at(0).at("real").at("memory_bytes").get<double>(), 1e9);
}

TEST(DunlinSim, TheFiguresOf2dTgaAreThoseOfTheFormulas) {
  const auto lines = simulate({"figures-2d-tga"});
  const Json& rows = lines.at(0).at("rows");
  ASSERT_GT(rows.size(), 50U);
  for (const Json& row : rows) EXPECT_NEAR(row.at("ratio").get<double>(), 1, 0.02) << row;
}

// The comparison in the paper on partial all-reduce, in one command.
TEST(DunlinSim, GroupsLearnAtSeveralTimesScalesAndSections) {
  const auto lines = simulate({"groups", "--learn", "--target-loss", "0.8", "--slowdowns", "2",
                               "--steps", "20", "--compute-times", "3.3ms,calibrated", "--scale",
                               "8,16", "--section-lengths", "1,4"});
  std::map<std::string, int> tables;
  for (const Json& line : lines) {
    ++tables[line.at("table")];
    if (line.at("method") == "all-reduce" && line.at("table") == "figures" &&
        line.at("slowed") == "none" && line.at("is_calibrated")) {
      EXPECT_NEAR(line.at("over_parameter_server").get<double>(), 4.27, 0.1);
    }
    EXPECT_EQ(line.at("reaches_loss"), true) << line;
  }
  // Methods by slowdowns and times; by slowdowns and sizes; those with sections by their lengths.
  EXPECT_EQ(tables["figures"], 10 * 3 * 2);
  EXPECT_EQ(tables["scale"], 10 * 2 * 2);
  EXPECT_EQ(tables["sections"], 4 * 2);
}

// A run is stopped before its end.
TEST(DunlinSim, AFailingSeedIsNamedAndCanBeRunAgain) {
  const CommandResult result = sim({"barrier", "-n", "4", "--jitter", "1us", "--seed", "7",
                                    "--seeds", "3", "--most-events", "20"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("`dunlin-sim barrier -n 4 --jitter 1us --most-events 20 "
                                    "--seed 7`"));
  EXPECT_THAT(result.err, HasSubstr("4 of 4 ranks are not done after --most-events"));
  EXPECT_THAT(result.err, HasSubstr("of barrier 'sim' #"));
  const CommandResult json = sim({"barrier", "-n", "4", "--most-events", "20", "--json"});
  EXPECT_EQ(json.exit_code, 1);
  EXPECT_THAT(json_lines(json.out).at(0).at("failure").get<std::string>(), HasSubstr("not done"));
}

TEST(DunlinSim, FiguresAreForPeopleToo) {
  const TempFolder folder;
  const std::string path = folder.file("sim.json");
  const CommandResult result = sim({"reduce", "-n", "4", "--count", "10", "--json-out", path});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("reduce: 4 ranks, rack 2.00 us + 12.5 GB/s, seed 1"));
  EXPECT_THAT(result.out, HasSubstr("100.0 % with every input"));
  EXPECT_THAT(result.out, HasSubstr("events in"));
  EXPECT_THAT(json_lines(content_of(path)), SizeIs(1));
}

TEST(DunlinSim, WrongUsageIsExplained) {
  const auto expect = [](const std::vector<std::string>& arguments, const std::string& why) {
    const CommandResult result = sim(arguments);
    EXPECT_EQ(result.exit_code, 2) << why;
    EXPECT_THAT(result.err, HasSubstr(why));
    EXPECT_THAT(result.out, IsEmpty());
  };
  expect({}, "A command is required");
  expect({"tea"}, "'tea' is not a command\nCommands: channel, barrier, ");
  expect({"barrier", "--latency", "5"}, "--latency: '5' is not a time from 0 to 1h");
  expect({"barrier", "--latency", "-5us"}, "'-5us' is not a time");
  expect({"barrier", "--bandwidth", "100"}, "--bandwidth: '100' is not a bandwidth");
  expect({"barrier", "--bandwidth", "0GB"}, "'0GB' is not a bandwidth");
  expect({"barrier", "--straggler", "3"}, "--straggler: '3' is not RANK:FACTOR");
  expect({"barrier", "-n", "2", "--straggler", "2:5"}, "straggler 2 of 2 ranks");
  expect({"barrier", "--kill", "1"}, "--kill: '1' is not RANK@TIME");
  expect({"barrier", "-n", "2", "--kill", "2@1us"}, "--kill: rank 2 in a job of 2 ranks");
  expect({"barrier", "--jitter", "normal:1us"}, "--jitter: 'normal:1us' is not TIME");
  expect({"barrier", "-n", "0"}, "--ranks");
  expect({"barrier", "-n", "100000"}, "at most 2048");
  expect({"channel", "-n", "3"}, "channels need an even number");
  expect({"reduce", "--graph", "knot"}, "--graph: ");
  expect({"reduce", "--sync", "maybe"}, "--sync");
  expect({"all-reduce", "--algorithm", "knot"}, "known are direct, shared");
  expect({"all-reduce", "--algorithm", "shared"}, "needs all ranks on one host");
  expect({"all-reduce", "-n", "8", "--algorithm", "torus-2d", "--grid", "2x3"}, "a grid of 2 x 3");
  expect({"all-reduce", "--grid", "2"}, "'2' is not a grid of ROWSxCOLUMNS");
  expect({"all-reduce", "-n", "4", "--groups", "5"}, "groups");
  expect({"broadcast", "-n", "4", "--root", "4"}, "--root 4 in a job of 4 ranks");
  expect({"figures-2d-tga", "--ranks-per-host", "2"}, "one kind of link");
  expect({"groups", "--jitter", "uniform:1us"}, "its model has no --jitter");
  expect({"groups", "--no-check"}, "its model has no --no-check");
  expect({"groups", "-n", "6"}, "6 ranks do not fill hosts of 4");
  expect({"groups", "--slowdowns", "nan"}, "--slowdowns");
  expect({"groups", "--compute-spread", "nan"}, "--compute-spread");
  expect({"groups", "--slowdown-threshold", "-1"}, "--slowdown-threshold");
  expect({"groups", "--compute", "0", "--message-time", "0", "--latency", "0", "--intra-latency",
          "0", "--bandwidth", "unlimited", "--intra-bandwidth", "unlimited"},
         "takes no time");
  expect({"groups", "--batch", "4"}, "--batch needs --learn");
  expect({"groups", "--section-lengths", "1,2"}, "--section-lengths needs --learn");
  expect({"groups", "--learn", "--learning-rate", "nan"}, "--learning-rate");
  expect({"groups", "--learn", "--batch", "0"}, "--batch");
  expect({"groups", "--learn", "--look-every", "9", "--most-iterations", "5"},
         "--look-every 9 exceeds");
  expect({"groups", "--learn", "--target-loss", "0.001", "--most-iterations", "4"},
         "doesn't reach a loss of 0.001 within 4 iterations");
  expect({"groups", "--compute-times", "3"}, "--compute-times");
  expect({"groups", "--compute", "1ms", "--compute-times", "2ms"}, "not both");
  expect({"groups", "--calibrate-to", "3"}, "needs --compute-times calibrated");
  expect({"groups", "--compute-times", "calibrated", "--calibrate-to", "100"}, "no computation");
  expect({"groups", "--scale", "16,18"}, "18 ranks do not fill hosts of 4");
  expect({"groups", "--scale", "4"}, "--slow-worker 5 of 4 workers");
  EXPECT_EQ(sim({"--help"}).exit_code, 0);
  EXPECT_THAT(sim({"reduce", "--help"}).out, HasSubstr("--straggler"));
}

TEST(DunlinSim, ALongRunIsAnnounced) {
  // The run would be long, but ends after a few events.
  const CommandResult ring = sim({"all-reduce", "-n", "8", "--algorithm", "ring", "--size", "1M",
                                  "--steps", "100000", "--most-events", "100"});
  EXPECT_EQ(ring.exit_code, 1);
  EXPECT_THAT(ring.err, HasSubstr("all-reduce of 8 ranks by ring: "));
  EXPECT_THAT(ring.err, HasSubstr("; --algorithm "));
  const CommandResult small = sim({"all-reduce", "-n", "8", "--size", "1M"});
  EXPECT_THAT(small.err, IsEmpty());
}

TEST(DunlinSim, WhereTheJsonCannotGoIsSaid) {
  const CommandResult result = sim({"barrier", "--json-out", "/no/such/folder/file"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("/no/such/folder/file"));
}

}  // namespace
}  // namespace dunlin::testing
