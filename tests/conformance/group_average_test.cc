// Averages by groups over every transport: all sources of groups, and workers of different speeds
// that leave early, disagree and die, the master among them.
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

#include "collectives/groups/group_average.h"
#include "tests/conformance/partial_support.h"

namespace dunlin::testing {
namespace {

using collective::GroupAverage;
using collective::GroupAverageOptions;
using collective::GroupSource;
using ::testing::HasSubstr;

constexpr std::size_t kCount = 20'000;
const auto kTimeout = std::chrono::seconds(20);

GroupAverageOptions options_of(Fabric& fabric, GroupSource source, std::string name = "world") {
  GroupAverageOptions options;
  options.name = std::move(name);
  options.count = kCount;
  options.source = source;
  const bool has_hosts = fabric.size() % 2 == 0;
  options.groups.layout.hosts = has_hosts ? 2 : 1;
  options.groups.layout.workers_per_host = fabric.size() / options.groups.layout.hosts;
  return options;
}

// Creates an average whose model is the rank.
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

// All elements are the same average of the ranks, but for rounding: an algorithm may add the parts
// of the model in different orders.
void expect_average_model(Fabric& fabric, GroupAverage& average) {
  const std::span<float> model = average.model();
  EXPECT_GE(model[0], 0);
  EXPECT_LE(model[0], fabric.size() - 1);
  EXPECT_THAT(model, ::testing::Each(::testing::FloatNear(model[0], 1e-5F)));
}

// The sum of all ranks' models.
double sum_of_models(Fabric& fabric, GroupAverage& average, const std::string& name) {
  const auto key = [&](int rank) { return fmt::format("{}: model of {}", name, rank); };
  const float own = average.model()[0];
  EXPECT_TRUE(is_well(
      fabric.bootstrap().publish(key(fabric.rank().value()), std::as_bytes(std::span(&own, 1)))));
  double sum = 0;
  for (int rank = 0; rank < fabric.size(); ++rank) {
    const auto found = fabric.bootstrap().lookup(key(rank), kTimeout * timeout_factor());
    EXPECT_TRUE(found.is_ok()) << found.status().to_string();
    float value = 0;
    if (found) std::memcpy(&value, found->data(), sizeof value);
    sum += value;
  }
  return sum;
}

void finish(GroupAverage& average) {
  EXPECT_TRUE(is_well(average.finish(kTimeout * timeout_factor())));
}

class GroupAverageTest : public OverPeers {};

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
      // With the smart policy, workers that compute nothing meet workers of their own host only: a
      // worker that asks finds the other host's workers in groups.
      if (source != GroupSource::kSmart) {
        EXPECT_NEAR(average->model()[0], 2.5, 0.1) << name;
      }
      EXPECT_NEAR(sum_of_models(fabric, *average, name), 15, 1e-3) << name;
      const auto statistics = average->statistics();
      EXPECT_EQ(statistics.iterations, kIterations);
      EXPECT_EQ(statistics.changes, 0u);
      EXPECT_GE(statistics.groups + statistics.alone, kIterations / 2);
      EXPECT_GE(statistics.members, 2 * statistics.groups);
      // A worker that leaves breaks at most one group of each worker that goes on.
      EXPECT_LT(statistics.failures, static_cast<std::uint64_t>(fabric.size())) << name;
      sync(fabric, name + " is over");
    }
  });
}

TEST_P(GroupAverageTest, ASlowWorkerKeepsNoOtherFromTheEnd) {
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

// Rank 0 leaves first, and serves the others until they have left.
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
    ASSERT_TRUE(is_well(average->wait(kTimeout * timeout_factor())));
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
TEST_P(GroupAverageTest, ADeadlineNamesTheRankThatIsWaitedFor) {
  run(2, [](Fabric& fabric) {
    GroupAverageOptions options = options_of(fabric, GroupSource::kRandom);
    options.groups.group_size = 2;
    const auto average = make_average(fabric, options);
    if (fabric.rank() == Rank(0)) {
      ASSERT_TRUE(is_well(average->start(0)));
      // It has its group, and waits for the other member.
      ASSERT_TRUE(progress_until(fabric, [&] {
        EXPECT_TRUE(average->test().is_busy());
        const auto awaited = average->awaited();
        return !awaited.empty() && awaited.front().peer == Rank(1);
      }));
      const Status status = average->wait(std::chrono::milliseconds(50));
      EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
      EXPECT_THAT(status.to_string(), HasSubstr("rank 1"));
    }
    sync(fabric, "waited");
    // The average went on after the deadline.
    if (fabric.rank() == Rank(1)) {
      ASSERT_TRUE(is_well(average->start(0)));
    }
    ASSERT_TRUE(is_well(average->wait(kTimeout * timeout_factor())));
    EXPECT_THAT(average->model(), ::testing::Each(0.5f));
    finish(*average);
    sync(fabric, "done");
  });
}

TEST_P(GroupAverageTest, DifferentOptionsAreFoundOut) {
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

// Connects all ranks on all lanes. Over UCX no rank may die before that (transports/ucx/README.md).
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

// The victims die, each in the average of its iteration, and the others go on.
void expect_survival(GroupSource source, int size, const std::map<int, std::uint64_t>& victims,
                     bool have_met = true) {
  std::set<int> killed;
  for (const auto& [victim, iteration] : victims) killed.insert(victim);
  const RunOptions ranks{
      .kind = PeerKind::kProcesses, .size = size, .killed = killed, .configure = {}};
  run_ranks(ranks, [&](Fabric& fabric) {
    if (have_met) greet(fabric);
    const auto average = make_average(fabric, options_of(fabric, source));
    // No rank dies before this: a rank that heard of a death earlier would have known no other
    // master.
    if (have_met) sync(fabric, "begun");
    constexpr std::uint64_t kIterations = 60;
    const auto dies = victims.find(fabric.rank().value());
    for (std::uint64_t iteration = 0; iteration < kIterations; ++iteration) {
      ASSERT_TRUE(is_well(average->start(iteration)));
      if (dies != victims.end() && dies->second == iteration) {
        for (int i = 0; i < 3; ++i) (void)average->test();
        kill(getpid(), SIGKILL);
      }
      ASSERT_TRUE(is_well(average->wait(kTimeout * timeout_factor()))) << iteration;
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

// Connections to these ranks fail before their deaths are reported.
TEST(PeerDeathGroups, OfRanksThatWereNeverMetIsSurvived) {
  const auto config = Config::parse(Environment::of_process());
  ASSERT_TRUE(config.is_ok());
  if (config->transports != std::vector<std::string>{"shm"})
    GTEST_SKIP() << "over transports other than shm, no rank may die before all have connected";
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
