#include "collectives/groups/static_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "tests/support/group_matrix.h"

namespace dunlin::collective {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// An iteration as in the paper's Fig. 9: for each worker the number of its group, or "-".
std::string row(const StaticSchedule& schedule, std::uint64_t iteration) {
  std::string text;
  const auto groups = schedule.groups_of(iteration);
  for (int i = 0; i < schedule.layout().workers(); ++i) {
    std::string cell = "-";
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (groups[g].has(Rank(i))) cell = fmt::format("{}", g + 1);
    }
    // A space between hosts makes tables readable.
    if (i > 0) text += i % schedule.layout().workers_per_host == 0 ? "  " : " ";
    text += cell;
  }
  return text;
}

TEST(StaticSchedule, IsThePapersForFourHostsOfFourWorkers) {
  const auto schedule = StaticSchedule::make({4, 4}).value();
  for (const std::uint64_t cycle : {0, 4, 400}) {
    //                                   W0       W4       W8       W12
    EXPECT_EQ(row(schedule, cycle + 0), "1 - 2 2  1 - 3 3  1 - 4 4  1 - 5 5");
    EXPECT_EQ(row(schedule, cycle + 1), "1 1 1 1  2 2 2 2  3 3 3 3  4 4 4 4");
    EXPECT_EQ(row(schedule, cycle + 2), "1 2 - 1  3 4 - 3  5 2 - 5  6 4 - 6");
    EXPECT_EQ(row(schedule, cycle + 3), "1 1 1 1  2 2 2 2  3 3 3 3  4 4 4 4");
  }
}

TEST(StaticSchedule, SaysTheSameToAllMembers) {
  const auto schedule = StaticSchedule::make({4, 4}).value();
  EXPECT_THAT(schedule.group_of(0, Rank(8)).ranks,
              ElementsAre(Rank(0), Rank(4), Rank(8), Rank(12)));
  EXPECT_THAT(schedule.group_of(2, Rank(13)).ranks, ElementsAre(Rank(5), Rank(13)));
  EXPECT_TRUE(schedule.group_of(2, Rank(6)).is_alone());
  EXPECT_EQ(schedule.group_of(6, Rank(5)), schedule.group_of(6, Rank(13)));
}

// For every number of hosts and workers, over two periods.
TEST(StaticSchedule, GroupsNeverConflictAndConnectAllWorkers) {
  for (int hosts = 1; hosts <= 9; ++hosts) {
    for (int local = 1; local <= 9; ++local) {
      const WorkerLayout layout{hosts, local};
      const auto schedule = StaticSchedule::make(layout).value();
      GroupMatrix expected = GroupMatrix::zero(layout.workers());
      std::size_t reduces = 0;
      std::uint64_t last = 0;
      for (std::uint64_t iteration = 0; iteration < 2 * StaticSchedule::kPeriod; ++iteration) {
        std::vector<Group> of(static_cast<std::size_t>(layout.workers()));
        GroupMatrix step(layout.workers());
        for (const Group& group : schedule.groups_of(iteration)) {
          EXPECT_GT(group.sequence, last) << "a total order";
          last = group.sequence;
          step.apply(group);
          for (const Rank rank : group.ranks) {
            EXPECT_EQ(of[rank.index()].sequence, 0u) << "in two groups";
            of[rank.index()] = group;
          }
        }
        for (int i = 0; i < layout.workers(); ++i) {
          const Group mine = schedule.group_of(iteration, Rank(i));
          EXPECT_EQ(mine.is_alone(), of[Rank(i).index()].sequence == 0);
          if (!mine.is_alone()) {
            EXPECT_EQ(mine, of[Rank(i).index()]);
          }
        }
        EXPECT_TRUE(step.is_doubly_stochastic());
        for (const Group& group : schedule.groups_of(iteration)) expected.add(group, 1);
        reduces += schedule.groups_of(iteration).size();
      }
      // A group drawn among those of a period mixes, if together they connect all workers.
      if (layout.workers() > 1) {
        EXPECT_LT(1 - expected.spectral_gap(), static_cast<double>(reduces) - 1e-6)
            << hosts << " x " << local;
      }
    }
  }
}

TEST(StaticSchedule, MixesEveryUpdateWithinTwoPeriods) {
  const auto schedule = StaticSchedule::make({4, 4}).value();
  GroupMatrix all(16);
  for (std::uint64_t iteration = 0; iteration < 8; ++iteration) {
    for (const Group& group : schedule.groups_of(iteration)) all.apply(group);
  }
  for (int from = 0; from < 16; ++from) {
    for (int to = 0; to < 16; ++to) EXPECT_GT(all.at(from, to), 0) << from << " to " << to;
  }
  EXPECT_TRUE(all.is_doubly_stochastic());
}

TEST(StaticSchedule, RefusesWhatCannotBe) {
  const auto refused = StaticSchedule::make({0, 4});
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("at least 1"));
  EXPECT_FALSE(StaticSchedule::make({1 << 16, 1 << 16}));
}

TEST(GroupMatrix, IsThePapersExample) {
  // Fig. 6: workers 0, 3 and 4 of five.
  const Group group{1, {Rank(0), Rank(3), Rank(4)}};
  const GroupMatrix f = product(5, std::span(&group, 1));
  for (const int i : {0, 3, 4}) {
    for (const int j : {0, 3, 4}) EXPECT_DOUBLE_EQ(f.at(i, j), 1.0 / 3);
  }
  EXPECT_EQ(f.at(1, 1), 1);
  EXPECT_EQ(f.at(1, 0), 0);
  EXPECT_TRUE(f.is_doubly_stochastic());
  EXPECT_NEAR(f.spectral_gap(), 0, 1e-9) << "workers 1 and 2 never hear of the others";
  GroupMatrix lopsided = GroupMatrix::zero(2);
  lopsided.add({1, {Rank(0), Rank(1)}}, 0.5);
  EXPECT_FALSE(lopsided.is_doubly_stochastic());
}

TEST(GroupMatrix, TheExpectationOfRandomPairsHasTheGapOfTheClosedForm) {
  // All pairs of n alike: E[F] = (1 - a) I + a J / n, a = 1 / (n - 1); its gap is a.
  constexpr int kWorkers = 6;
  GroupMatrix expected = GroupMatrix::zero(kWorkers);
  for (int i = 0; i < kWorkers; ++i) {
    for (int j = i + 1; j < kWorkers; ++j) expected.add({1, {Rank(i), Rank(j)}}, 1.0 / 15);
  }
  EXPECT_TRUE(expected.is_doubly_stochastic());
  EXPECT_NEAR(expected.spectral_gap(), 1.0 / 5, 1e-9);
}

}  // namespace
}  // namespace dunlin::collective
