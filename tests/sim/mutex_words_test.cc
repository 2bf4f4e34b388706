// The mutex of words in the owner rank's memory, over slow lanes: an atomic takes effect at a
// random moment after it was posted, and completes at a random moment after that. Notifications and
// reports of a death take random times, too. With every other pair of seeds, the connections of
// some atomics break, so that these report kIoError, whether they took effect or not. A failure
// prints its seed; run it alone with --gtest_filter=*/SEED.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "collectives/rma/mutex_words.h"
#include "tests/sim/hostile_world.h"
#include "tests/sim/slow_lane.h"
#include "tests/support/seeds.h"

namespace dunlin::testing {
namespace {

using collective::LockOutcome;
using collective::MutexMembers;
using collective::MutexWords;
using State = collective::MutexProtocol::State;
constexpr int kRounds = 20;

class Crowd {
 public:
  Crowd(std::uint64_t seed, int size)
      : breaks(seed / 2 % 2 == 1),
        world(seed, size),
        events(world.random()),
        words_(MutexWords::bytes(static_cast<std::size_t>(size)) / 8),
        ranks_(static_cast<std::size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) {
      const auto count = static_cast<std::size_t>(size);
      at(rank).first_cell = world.fabric(rank).board().allocate(count).value();
    }
    for (int rank = 0; rank < size; ++rank) {
      MutexMembers members{world.fabric(rank), "words", {}, static_cast<std::size_t>(rank), 0};
      for (int peer = 0; peer < size; ++peer) {
        at(rank).links.push_back(std::make_unique<SlowLink>(
            Rank(peer), rank, events, world.fabric(peer).board(), words_, world.random(), breaks));
        members.members.push_back({Rank(peer), at(peer).first_cell, at(rank).links.back().get()});
      }
      auto imported = at(rank).links.front()->import_region({}, words_.size() * 8).value();
      at(rank).mutex = MutexWords::create(std::move(members), std::move(imported)).value();
    }
  }

  struct Member {
    std::vector<std::unique_ptr<SlowLink>> links;
    std::unique_ptr<MutexWords> mutex;
    transport::NotifyId first_cell{};
    bool is_in = false;
    int rounds = 0;
  };
  Member& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  void act(int rank) {
    Member& member = at(rank);
    auto& random = world.random();
    world.fabric(rank).progress();  // confirms fences
    const Status status = member.mutex->progress();
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    const State state = member.mutex->state();
    if (state == State::kIdle && member.rounds < kRounds && random() % 4 == 0) member.mutex->want();
    if (state == State::kWaiting && random() % 128 == 0) {
      member.mutex->release(false);
      ++canceled;
    }
    if (state != State::kHeld) return;
    if (!member.is_in) {
      ASSERT_EQ(holder, -1) << "rank " << rank << " got it as well";
      const bool has_inherited = member.mutex->outcome() == LockOutcome::kLockedAfterDeath;
      inherited += has_inherited ? 1 : 0;
      ASSERT_TRUE(has_inherited || !is_orphaned) << "rank " << rank << " was not told";
      is_orphaned = false;
      holder = rank;
      member.is_in = true;
    } else if (random() % 4 == 0) {
      ASSERT_EQ(holder, rank);
      holder = -1;
      member.is_in = false;
      ++member.rounds;
      member.mutex->release(true);
    }
  }
  // Ranks that look at the words do so at intervals.
  void let_time_pass() {
    auto& network = world.network();
    network.wake_at(Rank(0), network.now() + std::chrono::milliseconds(1));
    network.step();
  }
  bool has_done(int rank) {
    return at(rank).rounds == kRounds && at(rank).mutex->state() == State::kIdle;
  }

  const bool breaks;  // connections, in the middle of atomics
  HostileWorld world;
  PendingEvents events;
  int holder = -1;
  bool is_orphaned = false;
  int inherited = 0;
  int canceled = 0;

 private:
  std::vector<std::uint64_t> words_;
  std::vector<Member> ranks_;
};

constexpr long kMostTurns = 2'000'000;  // far beyond any run that doesn't hang

class MutexWordsTest : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(MutexWordsTest, OneAtATimeAndAllInTheEnd) {
  const std::uint64_t seed = GetParam();
  const int size = 1 + static_cast<int>(seed % 7);
  Crowd crowd(seed, size);
  long turns = 0;
  const auto is_finished = [&] {
    for (int rank = 0; rank < size; ++rank) {
      if (!crowd.has_done(rank)) return false;
    }
    return true;
  };
  for (; turns < kMostTurns && !is_finished() && !HasFatalFailure(); ++turns) {
    crowd.act(static_cast<int>(crowd.world.random()() % static_cast<std::uint64_t>(size)));
    crowd.events.run_one();
    if (turns % 16 == 0) crowd.let_time_pass();
  }
  EXPECT_LT(turns, kMostTurns) << "seed " << seed << ": nothing moves any more";
  EXPECT_EQ(crowd.inherited, 0);
}

// One or two members, but not the owner rank, die at random moments, in the middle of any
// operation. The others learn of it one after another.
TEST_P(MutexWordsTest, DeathsArePassedOver) {
  const std::uint64_t seed = GetParam();
  const int size = 3 + static_cast<int>(seed % 6);
  Crowd crowd(seed, size);
  auto& random = crowd.world.random();
  const auto ranks = static_cast<std::uint64_t>(size);
  struct Death {
    int rank;
    long turn;
    bool is_over = false;
  };
  std::vector<Death> deaths;
  for (std::uint64_t i = 0; i <= seed % 2; ++i) {
    deaths.push_back({1 + static_cast<int>(random() % (ranks - 1)),
                      static_cast<long>(random() % (1000 * ranks))});
  }
  const auto is_dead = [&](int rank) {
    return std::any_of(deaths.begin(), deaths.end(),
                       [&](const Death& one) { return one.is_over && one.rank == rank; });
  };
  long turns = 0;
  const auto is_finished = [&] {
    for (int rank = 0; rank < size; ++rank) {
      if (!is_dead(rank) && !crowd.has_done(rank)) return false;
    }
    return true;
  };
  for (; turns < kMostTurns && !is_finished() && !HasFatalFailure(); ++turns) {
    for (Death& death : deaths) {
      if (death.is_over || turns < death.turn) continue;
      death.is_over = true;
      crowd.events.drop_some(death.rank);
      if (crowd.holder == death.rank) {
        crowd.holder = -1;
        crowd.is_orphaned = true;
      }
      for (int rank = 0; rank < size; ++rank) {
        crowd.events.add(-1, [&crowd, rank, victim = death.rank] {
          crowd.world.fabric(rank).peers().mark(Rank(victim), PeerState::kDead, "by the test");
        });
      }
      // The coordinator, too, learns of it at some time. Only then does it arrange a fence.
      crowd.events.add(-1, [&crowd, victim = death.rank] {
        crowd.world.job().kill(Rank(victim), "by the test");
      });
    }
    const int rank = static_cast<int>(random() % ranks);
    if (!is_dead(rank)) crowd.act(rank);
    crowd.events.run_one();
    if (turns % 16 == 0) crowd.let_time_pass();
  }
  EXPECT_LT(turns, kMostTurns) << "seed " << seed << ": nothing moves any more";
  // A member that does not know whether it took the mutex over reports the death, too.
  if (!crowd.breaks) {
    EXPECT_LE(crowd.inherited, static_cast<int>(deaths.size()));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, MutexWordsTest,
                         ::testing::Range<std::uint64_t>(1, 1 + testing::seeds(500)),
                         [](const auto& seed) { return std::to_string(seed.param); });

}  // namespace
}  // namespace dunlin::testing
