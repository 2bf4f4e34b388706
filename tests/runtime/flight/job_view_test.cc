#include "runtime/flight/job_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/flight/report.h"

namespace dunlin::flight {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr TimePoint kBegin{100s};

// A rank that has run for 10 s and waited for these.
Snapshot rank(int number, std::vector<PeerTime> peers = {}) {
  Snapshot snapshot;
  snapshot.rank = Rank(number);
  snapshot.size = 4;
  snapshot.job = "job";
  snapshot.pid = 1000 + number;
  snapshot.process = ProcessState::kRunning;
  snapshot.began = kBegin;
  snapshot.at = snapshot.seen = kBegin + 10s;
  snapshot.operations = 100;
  for (const PeerTime& each : peers) snapshot.waited += each.waited;
  snapshot.peers = std::move(peers);
  return snapshot;
}

Snapshot with_steps(Snapshot snapshot, std::uint64_t steps, Duration own) {
  snapshot.step = steps + 1;
  snapshot.steps = steps;
  snapshot.step_began = snapshot.at;
  snapshot.step_time = 10s;
  snapshot.own_time = own * static_cast<Duration::rep>(steps);
  return snapshot;
}

TEST(Blame, AWaitForARankThatWaitsIsPassedOn) {
  // A chain: 0 waits for 1, which waits for 2, which computes.
  const auto found =
      blame({{Rank(0), 10s, {{Rank(1), 8s}}}, {Rank(1), 10s, {{Rank(2), 8s}}}, {Rank(2), 10s, {}}});
  Duration of_1{};
  Duration of_2{};
  for (const Blame& each : found) {
    if (each.waiter != Rank(0)) continue;
    (each.culprit == Rank(1) ? of_1 : of_2) += each.lost;
  }
  EXPECT_NEAR(static_cast<double>(of_1 / 1ms), 1600, 1);
  EXPECT_NEAR(static_cast<double>(of_2 / 1ms), 6400, 1);
}

TEST(Blame, KeepsWhatNobodyKnowsMoreAbout) {
  const auto found = blame({{Rank(0), 10s, {{Rank(5), 8s}}}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].culprit, Rank(5));
  EXPECT_NEAR(static_cast<double>(found[0].lost / 1ms), 8000, 1);
}

TEST(Blame, EndsWhereRanksWaitForEachOther) {
  const auto found = blame({{Rank(0), 10s, {{Rank(1), 10s}}},
                            {Rank(1), 10s, {{Rank(2), 10s}}},
                            {Rank(2), 10s, {{Rank(0), 10s}}}});
  for (const Blame& each : found) EXPECT_NE(each.waiter, each.culprit);
  // A period without a length has no shares.
  EXPECT_TRUE(blame({{Rank(0), 0s, {{Rank(1), 1s}}}}).empty());
}

TEST(JobView, NamesTheRankThatTheOthersWaitFor) {
  const JobView job = view_of({}, {with_steps(rank(0, {{Rank(3), 6s, 9}}), 100, 33ms),
                                   with_steps(rank(1, {{Rank(0), 6s, 9}}), 100, 33ms),
                                   with_steps(rank(2, {{Rank(3), 6s, 9}}), 100, 33ms),
                                   with_steps(rank(3, {{Rank(2), 100ms, 9}}), 100, 99ms)});
  ASSERT_EQ(job.stragglers.size(), 1u);
  const Straggler& found = job.stragglers[0];
  EXPECT_EQ(found.rank, Rank(3));
  EXPECT_EQ(found.trouble, Trouble::kSlow);
  EXPECT_THAT(found.waiters, ElementsAre(Rank(0), Rank(2), Rank(1)));
  EXPECT_EQ(found.own_step, 99ms);
  EXPECT_EQ(found.median_step, 33ms);
  EXPECT_THAT(sentence(found, job), HasSubstr("rank 3 is slow: ranks 0, 2 and 1 wait for it"));
  EXPECT_THAT(sentence(found, job), HasSubstr("its steps take 3.0 times the median"));
  EXPECT_THAT(report(job), HasSubstr("rank 3 was waited for"));
}

TEST(JobView, NamesNobodyForWhomEachRankHardlyWaits) {
  // In sum, the ranks lose 93 % of a rank's time because of rank 0, but none loses 5 % of its own.
  std::vector<Snapshot> ranks{rank(0)};
  for (int i = 1; i < 32; ++i) ranks.push_back(rank(i, {{Rank(0), 300ms, 9}}));
  const JobView job = view_of({}, ranks);
  EXPECT_TRUE(job.stragglers.empty());
  EXPECT_THAT(report(job), HasSubstr("no rank held up the others"));
}

TEST(JobView, NamesNobodyWhereAllWaitAlike) {
  std::vector<Snapshot> ring;
  for (int i = 0; i < 4; ++i) ring.push_back(rank(i, {{Rank((i + 3) % 4), 6s, 9}}));
  const JobView job = view_of({}, ring);
  EXPECT_TRUE(job.stragglers.empty());
  EXPECT_NEAR(job.ranks[0].wait_share, 0.6, 1e-9);
  EXPECT_THAT(report(job), HasSubstr("no rank held up the others"));
}

TEST(JobView, LooksAtThePeriodBetweenTwoSnapshots) {
  const std::vector<Snapshot> before{rank(0, {{Rank(1), 5s, 9}}), rank(1)};
  std::vector<Snapshot> now{rank(0, {{Rank(1), 5s, 9}}), rank(1, {{Rank(0), 1800ms, 9}})};
  for (Snapshot& each : now) {
    each.at = each.seen = kBegin + 12s;
    each.operations += 50;
  }
  const JobView job = view_of(before, now);
  EXPECT_EQ(job.ranks[0].period, 2s);
  EXPECT_EQ(job.ranks[0].wait_share, 0);
  EXPECT_NEAR(job.ranks[1].wait_share, 0.9, 1e-9);
  EXPECT_EQ(job.ranks[1].operations, 50u);
  ASSERT_EQ(job.stragglers.size(), 1u);
  EXPECT_EQ(job.stragglers[0].rank, Rank(0));
  EXPECT_EQ(job.stragglers[0].trouble, Trouble::kSlow);
}

// Rank 1 has waited for rank 0 all the time, which gives no sign of life.
std::vector<Snapshot> silent_job(Duration silence) {
  Snapshot waiting = rank(1, {{Rank(0), 9s, 1}});
  waiting.awaited = Rank(0);
  waiting.awaited_since = waiting.at - 9s;
  Snapshot silent = rank(0);
  silent.seen = silent.at - silence;
  return {silent, waiting};
}

TEST(JobView, TellsStuckFromSlow) {
  auto now = silent_job(6s);
  auto before = now;
  for (Snapshot& each : before) each.at -= 1s;
  before[1].waited = before[1].peers[0].waited = 8s;
  JobView job = view_of(before, now, {.stuck_after = 5s});
  ASSERT_EQ(job.stragglers.size(), 1u);
  EXPECT_EQ(job.stragglers[0].trouble, Trouble::kStuck);
  EXPECT_THAT(sentence(job.stragglers[0], job),
              HasSubstr("rank 0 is stuck: for 6 s, it has done nothing"));
  // Not long enough.
  EXPECT_EQ(view_of(before, silent_job(4s), {.stuck_after = 5s}).stragglers[0].trouble,
            Trouble::kSlow);
  // Its steps usually take so long.
  now[0] = with_steps(now[0], 5, 2s);
  now[0].step_began = now[0].seen;
  EXPECT_EQ(view_of(before, now, {.stuck_after = 5s}).stragglers[0].trouble, Trouble::kSlow);
  // It completes operations that need no reading of the clock.
  now = silent_job(6s);
  now[0].operations += 1;
  EXPECT_EQ(view_of(before, now, {.stuck_after = 5s}).stragglers[0].trouble, Trouble::kSlow);
}

TEST(JobView, KnowsStoppedAndDeadProcesses) {
  auto now = silent_job(6s);
  now[0].process = ProcessState::kStopped;
  JobView job = view_of({}, now);
  ASSERT_EQ(job.stragglers.size(), 1u);
  EXPECT_THAT(sentence(job.stragglers[0], job),
              HasSubstr("rank 0 is stopped: its process 1000 was stopped by a signal"));
  now[0].process = ProcessState::kEnded;
  job = view_of({}, now);
  ASSERT_EQ(job.stragglers.size(), 1u);
  EXPECT_EQ(job.stragglers[0].trouble, Trouble::kDead);
  EXPECT_THAT(sentence(job.stragglers[0], job),
              HasSubstr("rank 0 is dead: its process 1000 has ended"));
  // Nobody waits yet.
  Snapshot dead = rank(0);
  dead.process = ProcessState::kEnded;
  ASSERT_EQ(view_of({}, {dead, rank(1)}).stragglers.size(), 1u);
  // One that has left is not dead.
  dead.phase = Phase::kEnded;
  EXPECT_TRUE(view_of({}, {dead, rank(1)}).stragglers.empty());
}

TEST(JobView, AnotherProcessOfTheSameRankBeginsAnew) {
  Snapshot old = rank(0, {{Rank(1), 5s, 9}});
  Snapshot now = rank(0, {{Rank(1), 1s, 9}});
  now.pid = 7;
  now.began = kBegin + 8s;
  const JobView job = view_of({old}, {now});
  EXPECT_EQ(job.ranks[0].period, 2s);
  EXPECT_NEAR(job.ranks[0].wait_share, 0.5, 1e-9);
}

}  // namespace
}  // namespace dunlin::flight
