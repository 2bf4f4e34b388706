// Averages by groups over every transport: all sources of groups, workers of different speeds, that
// leave early, that disagree, and that die, the master among them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "collectives/partial/group_average.h"
#include "tests/conformance/partial_support.h"

namespace dunlin::testing {
namespace {

using collective::GroupAverage;
using collective::GroupAverageOptions;
using collective::GroupSource;
using ::testing::HasSubstr;

constexpr std::size_t kCount = 20'000;
const auto kPatience = std::chrono::seconds(20);

GroupAverageOptions options_of(Fabric& fabric, GroupSource source, std::string name = "world") {
  GroupAverageOptions options;
  options.name = std::move(name);
  options.count = kCount;
  options.source = source;
  const bool has_nodes = fabric.size() % 2 == 0;
  options.groups.layout.nodes = has_nodes ? 2 : 1;
  options.groups.layout.workers_per_node = fabric.size() / options.groups.layout.nodes;
  return options;
}

// With a model that is its rank.
std::unique_ptr<GroupAverage> make_average(Fabric& fabric, const GroupAverageOptions& options) {
  auto made = GroupAverage::create(fabric, options);
  EXPECT_TRUE(made.is_ok()) << made.status().to_string();
  std::ranges::fill((*made)->model(), static_cast<float>(fabric.rank().value()));
  return std::move(made).value();
}

::testing::AssertionResult is_well(const Status& status) {
  if (status.is_ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << status.to_string();
}

// All elements went the same way, which is an average of the ranks.
void expect_average_model(Fabric& fabric, GroupAverage& average) {
  const std::span<float> model = average.model();
  EXPECT_GE(model[0], 0);
  EXPECT_LE(model[0], fabric.size() - 1);
  EXPECT_THAT(model, ::testing::Each(model[0]));
}

// Of all ranks.
double sum_of_models(Fabric& fabric, GroupAverage& average, const std::string& name) {
  const auto key = [&](int rank) { return fmt::format("{}: model of {}", name, rank); };
  const float own = average.model()[0];
  EXPECT_TRUE(is_well(
      fabric.bootstrap().publish(key(fabric.rank().value()), std::as_bytes(std::span(&own, 1)))));
  double sum = 0;
  for (int rank = 0; rank < fabric.size(); ++rank) {
    const auto found = fabric.bootstrap().lookup(key(rank), kPatience * patience());
    EXPECT_TRUE(found.is_ok()) << found.status().to_string();
    float value = 0;
    if (found) std::memcpy(&value, found->data(), sizeof value);
    sum += value;
  }
  return sum;
}

void finish(GroupAverage& average) {
  EXPECT_TRUE(is_well(average.finish(kPatience * patience())));
}

class GroupAverageTest : public ::testing::TestWithParam<PeerKind> {
 protected:
  void run(int size, const RankBody& body) {
    run_ranks({.kind = GetParam(), .size = size, .killed = {}, .configure = {}}, body);
  }
};

TEST_P(GroupAverageTest, EverySourceOfGroupsKeepsTheSumAndMixes) {
  run(6, [](Fabric& fabric) {
    for (const GroupSource source : collective::kGroupSources) {
      const std::string name = to_string(source);
      const auto average = make_average(fabric, options_of(fabric, source, name));
      constexpr std::uint64_t kIterations = 60;
      for (std::uint64_t iteration = 0; iteration < kIterations; ++iteration)
        ASSERT_TRUE(is_well(average->run(iteration))) << name << " " << iteration;
      finish(*average);
      expect_average_model(fabric, *average);
      // Workers that compute nothing meet at home only, in smart groups: whoever asks finds the
      // other node's workers in groups of theirs.
      if (source != GroupSource::kSmart) {
        EXPECT_NEAR(average->model()[0], 2.5, 0.1) << name;
      }
      EXPECT_NEAR(sum_of_models(fabric, *average, name), 15, 1e-3) << name;
      const auto statistics = average->statistics();
      EXPECT_EQ(statistics.iterations, kIterations);
      EXPECT_EQ(statistics.changes, 0u);
      EXPECT_GE(statistics.groups + statistics.alone, kIterations / 2);
      EXPECT_GE(statistics.members, 2 * statistics.groups);
      // Who leaves breaks groups of those who have still something to do: one at most.
      EXPECT_LT(statistics.failures, static_cast<std::uint64_t>(fabric.size())) << name;
      sync(fabric, name + " is over");
    }
  });
}

TEST_P(GroupAverageTest, ASlowWorkerKeepsNobodyFromTheEnd) {
  run(4, [](Fabric& fabric) {
    GroupAverageOptions options = options_of(fabric, GroupSource::kSmart);
    options.groups.group_size = 2;
    const auto average = make_average(fabric, options);
    const bool is_slow = fabric.rank() == Rank(3);
    const std::uint64_t iterations = is_slow ? 10 : 40;
    for (std::uint64_t iteration = 0; iteration < iterations; ++iteration) {
      const TimePoint until = fabric.clock().now() + std::chrono::milliseconds(is_slow ? 20 : 0);
      while (fabric.clock().now() < until) average->progress();
      ASSERT_TRUE(is_well(average->run(iteration)));
    }
    finish(*average);
    expect_average_model(fabric, *average);
    EXPECT_NEAR(sum_of_models(fabric, *average, "slow"), 6, 1e-3);
    sync(fabric, "done");
  });
}

// Rank 0 leaves first, and serves the others to their end.
TEST_P(GroupAverageTest, AMasterThatHasLeftServesOn) {
  run(4, [](Fabric& fabric) {
    const auto average = make_average(fabric, options_of(fabric, GroupSource::kRandom));
    const std::uint64_t iterations = fabric.rank() == Rank(0) ? 5 : 50;
    for (std::uint64_t iteration = 0; iteration < iterations; ++iteration)
      ASSERT_TRUE(is_well(average->run(iteration)));
    finish(*average);
    EXPECT_EQ(average->statistics().iterations, iterations);
    EXPECT_EQ(average->statistics().changes, 0u);
    expect_average_model(fabric, *average);
    EXPECT_NEAR(sum_of_models(fabric, *average, "left"), 6, 1e-3);
    sync(fabric, "done");
  });
}

TEST_P(GroupAverageTest, CallsOutOfOrderAreRefused) {
  run(2, [](Fabric& fabric) {
    GroupAverageOptions options = options_of(fabric, GroupSource::kBuffered);
    options.groups.group_size = 2;
    const auto average = make_average(fabric, options);
    EXPECT_EQ(average->test().code(), Code::kNotFound);
    ASSERT_TRUE(is_well(average->start(7)));
    EXPECT_EQ(average->start(8).code(), Code::kInvalidArgument);
    EXPECT_EQ(average->leave().code(), Code::kInvalidArgument);
    ASSERT_TRUE(is_well(average->wait(kPatience * patience())));
    EXPECT_EQ(average->start(7).code(), Code::kInvalidArgument);
    EXPECT_EQ(average->test().code(), Code::kNotFound);
    finish(*average);
    EXPECT_EQ(average->start(9).code(), Code::kInvalidArgument);

    options.name = "another";
    options.groups.layout = {1, 3};
    EXPECT_EQ(GroupAverage::create(fabric, options).status().code(), Code::kInvalidArgument);
    sync(fabric, "done");
  });
}

// Rank 1 never asks.
TEST_P(GroupAverageTest, ADeadlineNamesWhoIsWaitedFor) {
  run(2, [](Fabric& fabric) {
    GroupAverageOptions options = options_of(fabric, GroupSource::kRandom);
    options.groups.group_size = 2;
    const auto average = make_average(fabric, options);
    if (fabric.rank() == Rank(0)) {
      ASSERT_TRUE(is_well(average->start(0)));
      const Status status = average->wait(std::chrono::milliseconds(300));
      EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
      EXPECT_THAT(status.to_string(), HasSubstr("rank 1"));
    }
    sync(fabric, "waited");
    // It went on all the time.
    if (fabric.rank() == Rank(1)) {
      ASSERT_TRUE(is_well(average->start(0)));
    }
    ASSERT_TRUE(is_well(average->wait(kPatience * patience())));
    EXPECT_THAT(average->model(), ::testing::Each(0.5f));
    finish(*average);
    sync(fabric, "done");
  });
}

TEST_P(GroupAverageTest, OtherOptionsAreFoundOut) {
  run(2, [](Fabric& fabric) {
    GroupAverageOptions options = options_of(fabric, GroupSource::kSmart);
    options.groups.group_size = 2;
    if (fabric.rank() == Rank(1)) options.count = kCount - 1;
    const auto average = make_average(fabric, options);
    sync(fabric, "both are there");
    if (fabric.rank() == Rank(1)) {
      const Status status = average->run(0);
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
      EXPECT_EQ(status.peer(), Rank(0));
      EXPECT_THAT(status.to_string(), HasSubstr("other options"));
      EXPECT_EQ(average->test().code(), Code::kInvalidArgument);
    }
    sync(fabric, "done");
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, GroupAverageTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

// Ranks that are in touch with one another on all lanes: over UCX nobody may die before
// (transports/ucx/README.md).
void greet(Fabric& fabric) {
  PartialOptions options;
  options.name = "greeting";
  const auto partial = make_partial(fabric, options);
  PartialCall call;
  call.number = 1;
  for (int rank = 0; rank < fabric.size(); ++rank) call.members.emplace_back(rank);
  std::vector<float> model(100);
  call.input = call.output = model.data();
  call.count = model.size();
  ASSERT_TRUE(is_well(partial->run(call)));
  sync(fabric, "greeted");
}

// `victims` die, each in the average of that iteration, the others go on.
void expect_survival(GroupSource source, int size, const std::map<int, std::uint64_t>& victims,
                     bool have_met = true) {
  std::set<int> killed;
  for (const auto& [victim, iteration] : victims) killed.insert(victim);
  const RunOptions ranks{
      .kind = PeerKind::kProcesses, .size = size, .killed = killed, .configure = {}};
  run_ranks(ranks, [&](Fabric& fabric) {
    if (have_met) greet(fabric);
    const auto average = make_average(fabric, options_of(fabric, source));
    // Before anybody dies: who has heard of a death before it began knows no other master.
    if (have_met) sync(fabric, "begun");
    constexpr std::uint64_t kIterations = 60;
    const auto dies = victims.find(fabric.rank().value());
    for (std::uint64_t iteration = 0; iteration < kIterations; ++iteration) {
      ASSERT_TRUE(is_well(average->start(iteration)));
      if (dies != victims.end() && dies->second == iteration) {
        for (int i = 0; i < 3; ++i) (void)average->test();
        kill(getpid(), SIGKILL);
      }
      ASSERT_TRUE(is_well(average->wait(kPatience * patience()))) << iteration;
    }
    finish(*average);
    EXPECT_EQ(average->statistics().iterations, kIterations);
    int lowest = 0;
    while (victims.contains(lowest)) ++lowest;
    EXPECT_EQ(average->service()->master(), Rank(lowest));
    if (have_met) {
      EXPECT_EQ(average->statistics().changes > 0, lowest > 0);
    }
    expect_average_model(fabric, *average);
  });
}

TEST(PeerDeathGroups, AWorkersIsSurvived) {
  for (const GroupSource source : {GroupSource::kSmart, GroupSource::kRandom})
    expect_survival(source, 4, {{2, 10}});
}

TEST(PeerDeathGroups, TheMastersIsSurvived) {
  for (const GroupSource source :
       {GroupSource::kSmart, GroupSource::kRandom, GroupSource::kBuffered})
    expect_survival(source, 4, {{0, 10}});
}

TEST(PeerDeathGroups, TheMastersAndItsSuccessorsAreSurvived) {
  expect_survival(GroupSource::kSmart, 5, {{0, 10}, {1, 10}});
  expect_survival(GroupSource::kRandom, 5, {{0, 10}, {1, 30}});
}

// Their connections fail before the news of their deaths have come.
TEST(PeerDeathGroups, OfRanksWhomNobodyHasMetIsSurvived) {
  const auto config = Config::parse(Environment::of_process());
  ASSERT_TRUE(config.is_ok());
  if (config->transports != std::vector<std::string>{"shm"})
    GTEST_SKIP() << "over anything but shm, nobody may die before all have met";
  for (int round = 0; round < 5; ++round) {
    expect_survival(GroupSource::kRandom, 4, {{0, 0}, {1, 0}}, false);
    expect_survival(GroupSource::kSmart, 4, {{3, 0}}, false);
  }
}

TEST(PeerDeathGroups, UnderAStaticScheduleOneIsNamed) {
  run_ranks({.kind = PeerKind::kProcesses, .size = 3, .killed = {2}, .configure = {}},
            [](Fabric& fabric) {
              greet(fabric);
              GroupAverageOptions options = options_of(fabric, GroupSource::kStatic);
              options.groups.layout = {1, 3};
              const auto average = make_average(fabric, options);
              Status status;
              for (std::uint64_t iteration = 0; iteration < 20 && status.is_ok(); ++iteration) {
                if (fabric.rank() == Rank(2) && iteration == 9) kill(getpid(), SIGKILL);
                status = average->run(iteration);
              }
              EXPECT_EQ(status.code(), Code::kPeerDead) << status.to_string();
              EXPECT_EQ(status.peer(), Rank(2)) << status.to_string();
              EXPECT_EQ(average->test().code(), Code::kPeerDead);
            });
}

}  // namespace
}  // namespace dunlin::testing
