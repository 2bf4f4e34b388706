#include "collectives/groups/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/collectives/groups_world.h"
#include "tests/support/group_matrix.h"

namespace dunlin::collective {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

GroupOptions options_of(GroupPolicy policy, WorkerLayout layout, int group_size) {
  GroupOptions options;
  options.policy = policy;
  options.layout = layout;
  options.group_size = group_size;
  return options;
}

// A generator whose calls have to succeed. They return the notices.
struct Bench {
  explicit Bench(const GroupOptions& options) : generator(GroupGenerator::make(options).value()) {}

  GroupNotices ask(int rank, std::uint64_t iteration, std::uint64_t last_done = 0) {
    return call([&](auto& out) { return generator.ask(Rank(rank), iteration, last_done, out); });
  }
  GroupNotices done(const Group& group) {
    return call([&](auto& out) { return generator.done(group.leader(), group.sequence, out); });
  }
  GroupNotices fail(int rank, std::uint64_t sequence) {
    return call([&](auto& out) { return generator.fail(Rank(rank), sequence, out); });
  }
  GroupNotices lose(int rank) {
    return call([&](auto& out) { return generator.lose(Rank(rank), out); });
  }
  template <typename Call>
  GroupNotices call(Call&& made) {
    GroupNotices notices;
    const Status status = made(notices);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    return notices;
  }

  GroupGenerator generator;
};

TEST(GroupGenerator, RandomGroupsThatShareAWorkerWaitForTheLocks) {
  // As in Fig. 8, with groups of three among four workers: any two groups share two of them.
  Bench bench(options_of(GroupPolicy::kRandom, {1, 4}, 3));
  const auto first = bench.ask(0, 0);
  ASSERT_THAT(first, SizeIs(1));
  const Group group = first[0].group;
  EXPECT_EQ(first[0].to, Rank(0));
  EXPECT_TRUE(first[0].then_compute);
  EXPECT_THAT(group.ranks, SizeIs(3));

  // The member that asks now is told of this group first, and not yet of its own.
  const int member = group.ranks[1].value();
  const auto second = bench.ask(member, 0);
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_EQ(second[0].group, group);
  EXPECT_FALSE(second[0].then_compute);
  // The worker outside has a group of its own, which is pending.
  int outside = 0;
  while (group.has(Rank(outside))) ++outside;
  EXPECT_THAT(bench.ask(outside, 0), IsEmpty());
  EXPECT_TRUE(bench.generator.is_waiting(Rank(outside)));
  EXPECT_EQ(bench.generator.groups_made(), 3u);

  EXPECT_THAT(bench.ask(group.ranks[2].value(), 0), SizeIs(1));
  // It is over. The members' next group is that of the second worker, whose locks are free now.
  const auto after = bench.done(group);
  ASSERT_FALSE(after.empty());
  for (const GroupNotice& notice : after) {
    EXPECT_EQ(notice.group.sequence, 2u);
    EXPECT_EQ(notice.then_compute, notice.to == Rank(member));
  }
}

TEST(GroupGenerator, AGlobalDivisionServesAllAtOnce) {
  // Fig. 11: the first ask divides all four workers; the others take groups from their buffers.
  GroupOptions options = options_of(GroupPolicy::kSmart, {1, 4}, 2);
  Bench bench(options);
  const Group first = bench.ask(0, 0)[0].group;
  EXPECT_EQ(bench.generator.groups_made(), 2u);
  EXPECT_THAT(first.ranks, SizeIs(2));
  std::set<Rank> seen(first.ranks.begin(), first.ranks.end());
  for (int i = 1; i < 4; ++i) {
    const auto told = bench.ask(i, 0);
    ASSERT_THAT(told, SizeIs(1));
    EXPECT_TRUE(told[0].then_compute);
    seen.insert(told[0].group.ranks.begin(), told[0].group.ranks.end());
  }
  EXPECT_THAT(seen, SizeIs(4));
  EXPECT_EQ(bench.generator.groups_made(), 2u);
}

TEST(GroupGenerator, InterIntraMeetsHeadsThenHosts) {
  // Fig. 12: first a head worker of each host meets other hosts, and the others stay; then whole
  // hosts meet.
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    GroupOptions options = options_of(GroupPolicy::kSmart, {4, 4}, 3);
    options.seed = seed;
    Bench bench(options);
    bench.ask(5, 0);
    std::vector<int> heads(4, 0);
    for (int i = 0; i < 16; ++i) {
      const auto& queue = bench.generator.queue_of(Rank(i));
      ASSERT_THAT(queue, SizeIs(2));
      const Group& inter = *bench.generator.find(queue[0]);
      const Group& intra = *bench.generator.find(queue[1]);
      const int host = options.layout.host_of(Rank(i));
      EXPECT_THAT(intra.ranks, SizeIs(4));
      EXPECT_EQ(options.layout.host_of(intra.ranks.front()), host);
      EXPECT_EQ(options.layout.host_of(intra.ranks.back()), host);
      if (options.layout.host_of(inter.ranks.front()) !=
          options.layout.host_of(inter.ranks.back())) {
        ++heads[static_cast<std::size_t>(host)];
      } else {
        EXPECT_THAT(inter.ranks, SizeIs(3));
      }
    }
    EXPECT_THAT(heads, ElementsAre(1, 1, 1, 1));
  }
}

TEST(GroupGenerator, TheFilterLeavesSlowWorkersOut) {
  GroupOptions options = options_of(GroupPolicy::kSmart, {1, 4}, 2);
  options.slowdown_threshold = 3;
  Bench bench(options);
  // Worker 3 never asks. The others are three iterations ahead, and 3 - 0 is not below C_thres.
  const auto divided = bench.ask(0, 3);
  EXPECT_FALSE(divided[0].group.has(Rank(3)));
  EXPECT_THAT(bench.generator.queue_of(Rank(3)), IsEmpty());
  // 2 - 0 is below it.
  Bench other(options);
  other.ask(0, 2);
  EXPECT_THAT(other.generator.queue_of(Rank(3)), SizeIs(1));
}

TEST(GroupGenerator, ASlowWorkerMeetsFastOnesWhenItAsks) {
  GroupOptions options = options_of(GroupPolicy::kSmart, {2, 2}, 2);
  options.slowdown_threshold = 2;
  Bench bench(options);
  const auto told = bench.ask(0, 10);
  EXPECT_TRUE(told[0].group.is_alone()) << "all others are too far behind";
  // Worker 3 asks at iteration 1. Worker 0, at 10, may be in its group. No worker is left out of
  // the second group of its own host, as both workers there are equally slow.
  const auto slow = bench.ask(3, 1);
  EXPECT_FALSE(slow[0].group.is_alone());
  EXPECT_THAT(bench.generator.queue_of(Rank(3)), SizeIs(2));
  // On the other host the slow worker isn't in the second group, so there is no such group.
  EXPECT_THAT(bench.generator.queue_of(Rank(0)), SizeIs(1));
  EXPECT_THAT(bench.generator.queue_of(Rank(1)), SizeIs(1));

  // Without the filter inside hosts there is one.
  options.intra_filter = false;
  Bench unfiltered(options);
  unfiltered.ask(0, 10);
  unfiltered.ask(3, 1);
  EXPECT_THAT(unfiltered.generator.queue_of(Rank(0)), SizeIs(2));
}

TEST(GroupGenerator, WhoFindsOnlyBusyWorkersStaysAloneForAWhile) {
  GroupOptions options = options_of(GroupPolicy::kSmart, {1, 3}, 2);
  options.slowdown_threshold = 100;
  Bench bench(options);
  const Group all = bench.ask(0, 0)[0].group;  // one group of three, as there are no pairs
  ASSERT_THAT(all.ranks, SizeIs(3));
  EXPECT_EQ(bench.ask(1, 0)[0].group, all);
  // Worker 1 is done with it before the leader says so.
  std::uint64_t last_done = all.sequence;
  for (std::uint32_t i = 0; i < options.most_alone; ++i) {
    const auto told = bench.ask(1, i + 1, last_done);
    ASSERT_THAT(told, SizeIs(1));
    EXPECT_TRUE(told[0].group.is_alone());
    EXPECT_TRUE(told[0].then_compute);
    last_done = told[0].group.sequence;
  }
  // Then it is queued behind the group of one of the others.
  const auto next = bench.ask(1, options.most_alone + 1, last_done);
  ASSERT_THAT(next, SizeIs(1));
  ASSERT_THAT(next[0].group.ranks, SizeIs(2));
  const Rank other = next[0].group.ranks[next[0].group.ranks[0] == Rank(1) ? 1 : 0];
  EXPECT_THAT(bench.generator.queue_of(other), ElementsAre(all.sequence, next[0].group.sequence));

  // It is queued at once if it may never stay alone.
  options.most_alone = 0;
  Bench never(options);
  const Group first = never.ask(0, 0)[0].group;
  never.ask(1, 0);
  EXPECT_THAT(never.ask(1, 1, first.sequence)[0].group.ranks, SizeIs(2));
}

TEST(GroupGenerator, ABufferedGroupServesThoseWhoWereDrafted) {
  Bench bench(options_of(GroupPolicy::kBuffered, {1, 4}, 3));
  const Group group = bench.ask(0, 0)[0].group;
  const auto drafted = bench.ask(group.ranks[1].value(), 0);
  ASSERT_THAT(drafted, SizeIs(1));
  EXPECT_EQ(drafted[0].group, group);
  EXPECT_TRUE(drafted[0].then_compute);
  EXPECT_EQ(bench.generator.groups_made(), 1u);
  // A worker that was not in the group gets one of its own, whose busy members join later.
  int outside = 0;
  while (group.has(Rank(outside))) ++outside;
  const auto own = bench.ask(outside, 0);
  EXPECT_EQ(own[0].group.sequence, 2u);
}

TEST(GroupGenerator, ADeadWorkerLeavesGroupsThatNoWorkerWasToldOf) {
  Bench bench(options_of(GroupPolicy::kSmart, {1, 6}, 3));
  const Group known = bench.ask(0, 0)[0].group;
  int dead = 0;
  while (known.has(Rank(dead))) ++dead;
  const Group before = *bench.generator.find(bench.generator.queue_of(Rank(dead)).front());
  EXPECT_THAT(bench.lose(dead), IsEmpty());
  EXPECT_FALSE(bench.generator.is_alive(Rank(dead)));
  const Group after = *bench.generator.find(before.sequence);
  EXPECT_THAT(after.ranks, SizeIs(2));
  EXPECT_FALSE(after.has(Rank(dead)));
  EXPECT_THAT(bench.lose(dead), IsEmpty());
  // The next one leaves a single worker, which is free for another group.
  bench.lose(after.ranks[0].value());
  EXPECT_EQ(bench.generator.find(before.sequence), nullptr);
  EXPECT_THAT(bench.generator.queue_of(after.ranks[1]), IsEmpty());
}

TEST(GroupGenerator, AGroupUnderWayWithADeadWorkerIsBroken) {
  Bench bench(options_of(GroupPolicy::kSmart, {1, 3}, 3));
  const Group group = bench.ask(0, 0)[0].group;
  bench.ask(1, 0);
  const auto told = bench.lose(2);
  ASSERT_THAT(told, SizeIs(2));
  for (const GroupNotice& notice : told) {
    EXPECT_EQ(notice.kind, GroupNotice::Kind::kBroken);
    EXPECT_EQ(notice.group.sequence, group.sequence);
    EXPECT_TRUE(notice.ask_again);
  }
  // They ask again, and are grouped without it.
  const auto again = bench.ask(0, 0);
  EXPECT_THAT(again[0].group.ranks, ElementsAre(Rank(0), Rank(1)));
  // Then one of these is lost as well, and a single worker goes on alone.
  bench.lose(1);
  EXPECT_TRUE(bench.ask(0, 0)[0].group.is_alone());
}

TEST(GroupGenerator, WhoEndsItsTrainingBreaksNothingThatItIsDoneWith) {
  Bench bench(options_of(GroupPolicy::kBuffered, {1, 3}, 3));
  const Group group = bench.ask(0, 0)[0].group;
  bench.ask(1, 0);
  GroupNotices notices;
  // It was not told of any group yet.
  EXPECT_EQ(bench.generator.lose(Rank(2), notices, group.sequence).code(), Code::kInvalidArgument);
  EXPECT_TRUE(bench.generator.is_alive(Rank(2)));
  bench.ask(2, 0);
  ASSERT_TRUE(bench.generator.lose(Rank(2), notices, group.sequence).is_ok());
  EXPECT_THAT(notices, IsEmpty());
  // The others may still be reducing it.
  ASSERT_NE(bench.generator.find(group.sequence), nullptr);
  bench.done(group);
  EXPECT_EQ(bench.generator.find(group.sequence), nullptr);
}

TEST(GroupGenerator, NumbersFromAnyOn) {
  const GroupOptions options = options_of(GroupPolicy::kSmart, {1, 2}, 2);
  GroupGenerator generator = GroupGenerator::make(options, 1000).value();
  GroupNotices notices;
  ASSERT_TRUE(generator.ask(Rank(0), 0, 0, notices).is_ok());
  EXPECT_EQ(notices[0].group.sequence, 1000u);
  EXPECT_EQ(GroupGenerator::make(options, 0).status().code(), Code::kInvalidArgument);
}

TEST(GroupGenerator, ADroppedGroupOfOneGivesItsWaitingWorkerAnother) {
  // Groups of two: the pending group of the waiting worker shrinks to that worker.
  Bench bench(options_of(GroupPolicy::kRandom, {1, 6}, 2));
  int waiting = -1;
  for (int i = 0; i < 6 && waiting < 0; ++i) {
    if (bench.ask(i, 0).empty()) waiting = i;
  }
  ASSERT_GE(waiting, 0) << "with this seed, a worker drew one that was locked";
  const auto queue = bench.generator.queue_of(Rank(waiting));
  const Group own = *bench.generator.find(queue.back());
  const Rank partner = own.ranks[own.ranks[0] == Rank(waiting) ? 1 : 0];
  const std::uint64_t made = bench.generator.groups_made();
  bench.lose(partner.value());
  EXPECT_EQ(bench.generator.find(own.sequence), nullptr);
  EXPECT_GT(bench.generator.groups_made(), made);
  EXPECT_FALSE(bench.generator.queue_of(Rank(waiting)).empty());
}

TEST(GroupGenerator, AReduceThatFailsIsBrokenForAll) {
  Bench bench(options_of(GroupPolicy::kSmart, {1, 2}, 2));
  const Group group = bench.ask(0, 0)[0].group;
  bench.ask(1, 0);
  EXPECT_THAT(bench.fail(1, group.sequence), SizeIs(2));
  // The other one finds out, too, and is told once more.
  const auto again = bench.fail(0, group.sequence);
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_TRUE(again[0].ask_again);
  EXPECT_GT(bench.ask(0, 0)[0].group.sequence, group.sequence);
}

TEST(GroupGenerator, RepeatedAsksAreAnsweredAlike) {
  Bench bench(options_of(GroupPolicy::kSmart, {1, 2}, 2));
  const auto told = bench.ask(0, 0);
  EXPECT_EQ(bench.ask(0, 0), told);
  bench.ask(1, 0);
  bench.done(told[0].group);
  // The group is over: the worker ignores the answer, and no group is made.
  const auto late = bench.ask(0, 0);
  EXPECT_EQ(late[0].group.sequence, told[0].group.sequence);
  EXPECT_EQ(bench.generator.groups_made(), 1u);
}

TEST(GroupGenerator, SaysWhatIsWrongWithCallsAndOptions) {
  const auto message = [](const Status& status) { return std::string(status.message()); };
  GroupOptions options = options_of(GroupPolicy::kSmart, {2, 2}, 5);
  EXPECT_THAT(message(GroupGenerator::make(options).status()), HasSubstr("group size 5"));
  options.group_size = 1;
  EXPECT_EQ(GroupGenerator::make(options).status().code(), Code::kInvalidArgument);
  options.group_size = 2;
  options.slowdown_threshold = 0;
  EXPECT_THAT(message(GroupGenerator::make(options).status()), HasSubstr("threshold"));
  options.slowdown_threshold = 1;
  options.layout.hosts = 0;
  EXPECT_THAT(message(GroupGenerator::make(options).status()), HasSubstr("hosts"));

  Bench bench(options_of(GroupPolicy::kSmart, {1, 4}, 2));
  GroupNotices notices;
  EXPECT_EQ(bench.generator.ask(Rank(4), 0, 0, notices).code(), Code::kOutOfRange);
  EXPECT_EQ(bench.generator.ask(Rank(), 0, 0, notices).code(), Code::kOutOfRange);
  EXPECT_EQ(bench.generator.ask(Rank(0), 0, 7, notices).code(), Code::kInvalidArgument);
  const Group group = bench.ask(0, 3)[0].group;
  EXPECT_EQ(bench.generator.ask(Rank(0), 2, 0, notices).code(), Code::kInvalidArgument);
  EXPECT_EQ(bench.generator.done(Rank(0), 9, notices).code(), Code::kInvalidArgument);
  EXPECT_THAT(message(bench.generator.done(group.leader(), group.sequence, notices)),
              HasSubstr("was not told"));
  int outside = 0;
  while (group.has(Rank(outside))) ++outside;
  EXPECT_THAT(message(bench.generator.fail(Rank(outside), group.sequence, notices)),
              HasSubstr("no member"));
  bench.lose(3);
  EXPECT_EQ(bench.generator.ask(Rank(3), 0, 0, notices).code(), Code::kPeerDead);
}

TEST(GroupGenerator, TheSameSeedGivesTheSameGroups) {
  for (const GroupPolicy policy : kGroupPolicies) {
    testing::PartialSetting setting;
    setting.options = options_of(policy, {3, 3}, 3);
    setting.iterations = 20;
    setting.deaths = {{4, 150}};
    testing::PartialWorld first(setting);
    ASSERT_TRUE(first.run().is_ok());
    testing::PartialWorld again(setting);
    ASSERT_TRUE(again.run().is_ok());
    EXPECT_EQ(again.reduced(), first.reduced());
    setting.options.seed += 1;
    testing::PartialWorld other(setting);
    ASSERT_TRUE(other.run().is_ok());
    EXPECT_NE(other.reduced(), first.reduced());
  }
}

// The paper's condition for convergence (section 3.3) holds for the groups that are reduced.
TEST(GroupGenerator, ReducesMixAllWorkers) {
  for (const GroupPolicy policy : kGroupPolicies) {
    testing::PartialSetting setting;
    setting.options = options_of(policy, {4, 4}, 3);
    setting.iterations = 50;
    setting.slow = 5;
    testing::PartialWorld world(setting);
    ASSERT_TRUE(world.run().is_ok());
    GroupMatrix expected = GroupMatrix::zero(16);
    for (const Group& group : world.reduced())
      expected.add(group, 1 / static_cast<double>(world.reduced().size()));
    EXPECT_TRUE(expected.is_doubly_stochastic());
    EXPECT_GT(expected.spectral_gap(), 0.01) << to_string(policy);
    EXPECT_TRUE(product(16, world.reduced()).is_doubly_stochastic());
  }
}

}  // namespace
}  // namespace dunlin::collective
