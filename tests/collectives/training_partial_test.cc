// Training by partial all-reduce: how a request to stop spreads through static groups, which
// options are valid, and the death of the master during training.
#include <gtest/gtest.h>
#include <signal.h>

#include <vector>

#include "collectives/training/methods/partial.h"
#include "tests/collectives/training_support.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::Group;
using collective::GroupSource;
using collective::StaticSchedule;
using training::MethodKind;
using training::MethodOptions;
using training::Synchronizer;

// A rank that is in a group with a rank that knows the request knows it, too.
bool spreads(const StaticSchedule& schedule, Rank first) {
  std::vector<bool> knows(static_cast<std::size_t>(schedule.layout().workers()));
  knows[first.index()] = true;
  for (std::uint64_t iteration = 0; iteration < training::kSpread; ++iteration) {
    for (const Group& group : schedule.groups_of(iteration)) {
      const bool has_one =
          std::ranges::any_of(group.ranks, [&](Rank rank) { return knows[rank.index()]; });
      for (const Rank rank : group.ranks) knows[rank.index()] = has_one;
    }
  }
  return std::ranges::all_of(knows, [](bool each) { return each; });
}

TEST(TrainingPartialTest, ARequestToStopSpreadsThroughStaticGroupsInTwoPeriods) {
  for (int hosts = 1; hosts <= 12; ++hosts) {
    for (int workers = 1; workers <= 9; ++workers) {
      const auto schedule = StaticSchedule::make({hosts, workers});
      ASSERT_TRUE(schedule.is_ok());
      for (int rank = 0; rank < hosts * workers; ++rank)
        EXPECT_TRUE(spreads(*schedule, Rank(rank))) << hosts << " x " << workers << ": " << rank;
    }
  }
}

TEST(TrainingPartialTest, LayoutsThatDoNotSuitAreRefused) {
  MethodOptions options;
  options.kind = MethodKind::kPartial;
  options.count = 10;
  EXPECT_TRUE(training::check(options, 1).is_ok());
  EXPECT_TRUE(training::check(options, 2).is_ok());  // fewer ranks than a group
  options.generator.layout = {2, 3};
  EXPECT_TRUE(training::check(options, 6).is_ok());
  EXPECT_EQ(training::check(options, 4).code(), Code::kInvalidArgument);
  options.generator.group_size = 1;
  EXPECT_EQ(training::check(options, 6).code(), Code::kInvalidArgument);
}

TEST(TrainingPartialTest, HostsAreThoseOfTheJobUnlessSaid) {
  MethodOptions options;
  options.generator.group_size = 3;
  EXPECT_EQ(training::groups_of(options, 8, 4).layout, (collective::WorkerLayout{2, 4}));
  EXPECT_EQ(training::groups_of(options, 8, 3).layout, (collective::WorkerLayout{8, 1}));
  EXPECT_EQ(training::groups_of(options, 2, 2).group_size, 2);
  options.generator.layout = {4, 2};
  EXPECT_EQ(training::groups_of(options, 8, 8).layout, (collective::WorkerLayout{4, 2}));
}

// Rank 0 runs the generator. Its death costs the other ranks no iteration.
TEST(TrainingPartialTest, ContinuesWithoutItsMaster) {
  constexpr int kWorkers = 4;
  for (const GroupSource source : {GroupSource::kRandom, GroupSource::kSmart}) {
    MethodOptions options;
    options.kind = MethodKind::kPartial;
    options.count = 1000;
    options.groups = source;
    RunOptions run;
    run.kind = PeerKind::kProcesses;
    run.size = kWorkers;
    run.killed = {0};
    run.configure = [](Config& config) { config.transports = {"shm"}; };
    run_ranks(run, [&](transport::Fabric& fabric) {
      const int rank = fabric.rank().value();
      auto made = Synchronizer::create(fabric, options, std::chrono::seconds(60));
      ASSERT_TRUE(made.is_ok()) << made.status().to_string();
      Synchronizer& synchronizer = **made;
      const ComputeGradient compute = [&](int worker, std::uint64_t t, std::span<const float>,
                                          std::span<float> gradient) {
        std::ranges::fill(gradient, 1.0F);
        if (worker == 0 && t == 5) raise(SIGKILL);
      };
      for (std::uint64_t t = 0; t < 60; ++t) {
        const auto ended = iterate(synchronizer, rank, t, compute, 0.5F);
        ASSERT_TRUE(ended.is_ok()) << rank << ": " << ended.status().to_string();
      }
      // All gradients are equal, so averages keep all elements equal; a torn model would not.
      for (const float value : synchronizer.parameters())
        ASSERT_EQ(value, synchronizer.parameters().front());
      EXPECT_LT(synchronizer.parameters().front(), 0);
      EXPECT_GE(synchronizer.parameters().front(), -60 * 0.5F * kWorkers);
      EXPECT_GT(synchronizer.report().synchronizations, 0u);
      const Status left = synchronizer.leave();
      EXPECT_TRUE(left.is_ok()) << left.to_string();
    });
  }
}

}  // namespace
}  // namespace dunlin::testing
