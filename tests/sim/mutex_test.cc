// The managed mutex, stepped in virtual time on the hostile network, over many seeds. A failure
// prints its seed; run it alone with --gtest_filter=*/SEED.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "collectives/rma/mutex.h"
#include "tests/sim/hostile_world.h"
#include "tests/support/seeds.h"

namespace dunlin::testing {
namespace {

using collective::DistributedMutex;
using collective::LockOutcome;
using collective::MutexOptions;

constexpr int kNone = -1;
constexpr int kRounds = 25;

// All ranks lock, hold the mutex for a while, unlock, and now and then cancel a request.
class Crowd {
 public:
  Crowd(std::uint64_t seed, int size) : world(seed, size), ranks_(static_cast<std::size_t>(size)) {
    MutexOptions options;
    options.membership = everybody(size);
    options.owner_rank = Rank(static_cast<int>(seed % static_cast<std::uint64_t>(size)));
    owner_rank = options.owner_rank;
    for (int rank = 0; rank < size; ++rank)
      at(rank).mutex = DistributedMutex::prepare(world.fabric(rank), options).value();
    for (int rank = 0; rank < size; ++rank) EXPECT_TRUE(at(rank).mutex->connect().is_ok());
  }

  struct Member {
    std::unique_ptr<DistributedMutex> mutex;
    enum class Phase : std::uint8_t { kOut, kWaiting, kIn, kLeaving } phase = Phase::kOut;
    int rounds = 0;
    bool is_over = false;
  };
  Member& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  // An error other than busy.
  Status act(int rank) {
    Member& member = at(rank);
    auto& random = world.random();
    switch (member.phase) {
      case Member::Phase::kOut: {
        if (member.rounds == kRounds || random() % 4 == 0) return member.mutex->progress();
        DUNLIN_TRY(member.mutex->start());
        member.phase = Member::Phase::kWaiting;
        return Status::ok();
      }
      case Member::Phase::kWaiting: {
        if (random() % 64 == 0) {
          DUNLIN_TRY(member.mutex->cancel());
          ++canceled;
          member.phase = Member::Phase::kLeaving;
          return Status::ok();
        }
        DUNLIN_ASSIGN(const LockOutcome outcome, member.mutex->test());
        EXPECT_EQ(holder, kNone) << "rank " << rank << " got it as well";
        EXPECT_EQ(member.mutex->start().code(), Code::kInvalidArgument);
        if (outcome == LockOutcome::kLockedAfterDeath) ++inherited;
        if (is_orphaned) {
          EXPECT_EQ(outcome, LockOutcome::kLockedAfterDeath);
        }
        is_orphaned = false;
        holder = rank;
        member.phase = Member::Phase::kIn;
        return Status::ok();
      }
      case Member::Phase::kIn:
        EXPECT_EQ(holder, rank);
        if (random() % 4 != 0) return member.mutex->progress();
        holder = kNone;
        ++member.rounds;
        member.phase = Member::Phase::kLeaving;
        return member.mutex->start_unlock();
      case Member::Phase::kLeaving:
        DUNLIN_TRY(member.mutex->test_unlock());
        EXPECT_EQ(member.mutex->start_unlock().code(), Code::kInvalidArgument);
        member.phase = Member::Phase::kOut;
        return Status::ok();
    }
    return Status::ok();
  }

  HostileWorld world;
  Rank owner_rank;
  int holder = kNone;
  bool is_orphaned = false;  // the holder died
  int inherited = 0;
  int canceled = 0;

 private:
  std::vector<Member> ranks_;
};

class MutexChaosTest : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(MutexChaosTest, OneAtATimeAndAllInTheEnd) {
  const std::uint64_t seed = GetParam();
  Crowd crowd(seed, 1 + static_cast<int>(seed % 7));
  const bool is_finished = crowd.world.run([&](int rank) {
    const Status status = crowd.act(rank);
    EXPECT_FALSE(status.is_error()) << "seed " << seed << ": " << status.to_string();
    return crowd.at(rank).rounds == kRounds && crowd.at(rank).phase == Crowd::Member::Phase::kOut;
  });
  EXPECT_TRUE(is_finished) << "seed " << seed << ": nothing moves any more";
  EXPECT_EQ(crowd.inherited, 0);
}

// A rank dies at a random moment. If it holds the mutex, the next holder is told so, and all other
// ranks get their turns. If it is the owner rank, all ranks are told that it is gone.
TEST_P(MutexChaosTest, ADeathIsPassedOver) {
  const std::uint64_t seed = GetParam();
  Crowd crowd(seed, 2 + static_cast<int>(seed % 6));
  auto& world = crowd.world;
  const Rank victim(static_cast<int>(world.random()() % static_cast<std::uint64_t>(world.size())));
  world.network().lose_at(victim, TimePoint() + std::chrono::microseconds(world.random()() % 800));
  bool is_told = false;
  const bool is_finished = world.run([&](int rank) {
    const bool is_lost = world.network().is_lost(victim);
    // The coordinator, too, learns of it at some time. Only then does it arrange a fence.
    if (is_lost && !is_told && world.random()() % 16 == 0) {
      world.job().kill(victim, "by the test");
      is_told = true;
    }
    if (is_lost && crowd.holder == victim.value()) {
      crowd.holder = kNone;
      crowd.is_orphaned = true;
    }
    if (is_lost && Rank(rank) == victim) return true;
    auto& member = crowd.at(rank);
    if (member.is_over) return true;
    const Status status = crowd.act(rank);
    if (status.is_error() && is_lost && victim == crowd.owner_rank) {
      EXPECT_EQ(status.code(), Code::kPeerDead) << status.to_string();
      EXPECT_EQ(status.peer(), victim);
      member.is_over = true;
    } else {
      EXPECT_FALSE(status.is_error()) << "seed " << seed << ": " << status.to_string();
    }
    // Check whether the awaited peer is gone, as Fabric::wait() does for a blocking caller.
    for (const transport::Awaited& wait : member.mutex->awaited()) {
      EXPECT_EQ(wait.peer, crowd.owner_rank);
      if (is_lost && wait.peer == victim) member.is_over = true;
    }
    return member.is_over ||
           (member.rounds == kRounds && member.phase == Crowd::Member::Phase::kOut);
  });
  EXPECT_TRUE(is_finished) << "seed " << seed << ": nothing moves any more";
  EXPECT_LE(crowd.inherited, 1);
}

TEST(Mutex, RefusesWhatCannotBe) {
  HostileWorld world(3, 2);
  MutexOptions options;
  options.membership = everybody(2);
  options.owner_rank = Rank(2);
  EXPECT_EQ(DistributedMutex::prepare(world.fabric(0), options).status().code(),
            Code::kInvalidArgument);
  options.owner_rank = Rank(1);
  options.membership.members = {Rank(1)};
  EXPECT_EQ(DistributedMutex::prepare(world.fabric(0), options).status().code(),
            Code::kInvalidArgument);
  options.membership = everybody(2);
  const auto first = DistributedMutex::prepare(world.fabric(0), options).value();
  options.owner_rank = Rank(0);
  const auto second = DistributedMutex::prepare(world.fabric(1), options).value();
  EXPECT_EQ(first->connect().code(), Code::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Seeds, MutexChaosTest,
                         ::testing::Range<std::uint64_t>(1, 1 + testing::seeds(200)),
                         [](const auto& seed) { return std::to_string(seed.param); });

}  // namespace
}  // namespace dunlin::testing
