// The distributed mutex over every transport: of words in the owner rank's memory if the transport
// has atomics, and managed by the owner rank.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <string>
#include <thread>

#include "collectives/rma/mutex.h"
#include "runtime/config.h"
#include "tests/conformance/shared.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::DistributedMutex;
using collective::LockOutcome;
using collective::MutexOptions;
using transport::Fabric;

constexpr auto kTimeout = std::chrono::seconds(60);

// A death itself has to become known. The heartbeats that stay away would tell of it after ten
// minutes, longer than any wait here.
void with_slow_heartbeats(Config& config) {
  config.heartbeat = std::chrono::seconds(60);
}

std::string transport_name() {
  return Config::from_environment().value().transports.front();
}

bool has_atomics() {
  return transport_name() != "ucx" && transport_name() != "tcp";
}

std::unique_ptr<DistributedMutex> make_mutex(Fabric& fabric, bool is_managed, Rank owner_rank) {
  MutexOptions options;
  for (int rank = 0; rank < fabric.size(); ++rank) options.membership.members.emplace_back(rank);
  options.owner_rank = owner_rank;
  options.is_managed = is_managed;
  auto mutex = DistributedMutex::prepare(fabric, options);
  EXPECT_TRUE(mutex.is_ok()) << mutex.status().to_string();
  const Status status = (*mutex)->connect();
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_EQ((*mutex)->is_managed(), is_managed || !has_atomics());
  return std::move(mutex).value();
}

// Waits for all ranks that are present. Unlike sync(), it progresses the mutex.
void meet(Fabric& fabric, DistributedMutex& mutex, const std::string& name) {
  const auto key = [&](int rank) { return name + "/" + std::to_string(rank); };
  EXPECT_TRUE(fabric.bootstrap().publish(key(fabric.rank().value()), {}).is_ok());
  for (int rank = 0; rank < fabric.size(); ++rank) {
    EXPECT_TRUE(progress_until(fabric, [&] {
      EXPECT_TRUE(mutex.progress().is_ok());
      return !fabric.peers().is_present(Rank(rank)) ||
             fabric.bootstrap().lookup(key(rank), std::chrono::milliseconds(1)).is_ok();
    })) << name;
  }
}

// Waits until the request that this rank has started can't be overtaken by one that starts later.
void await_place_in_line(Fabric& fabric, DistributedMutex& mutex, Rank owner) {
  if (mutex.is_managed()) {
    // The owner rank has the notification when it is flushed.
    if (fabric.rank() == owner) return;
    const Status flushed = complete(fabric, [&](transport::Completion* done) {
      return fabric.link(owner).value()->control().flush(transport::Visibility::kRemote, done);
    });
    EXPECT_TRUE(flushed.is_ok()) << flushed.to_string();
    return;
  }
  // Over shm every atomic completes in the call that posts it: start() has drawn the ticket. Over a
  // network nothing tells that the ticket is drawn, which takes a few of its latencies.
  if (transport_name() == "shm") return;
  const TimePoint began = fabric.clock().now();
  progress_until(fabric, [&] {
    EXPECT_TRUE(mutex.progress().is_ok());
    return fabric.clock().now() > began + std::chrono::milliseconds(200) * timeout_factor();
  });
}

struct Kind {
  PeerKind peers;
  bool is_managed;
};

// A number that only the mutex protects. Reading and writing are separate steps, so that changes
// get lost if two ranks hold the mutex. Atomic for the sake of the thread sanitizer, which can't
// see how ranks order one another through memory that each has mapped at another address.
template <typename T>
class Plain {
 public:
  operator T() const { return value_.load(std::memory_order_relaxed); }
  Plain& operator=(T value) {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }

 private:
  std::atomic<T> value_{};
};

class MutexTest : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (!GetParam().is_managed && !has_atomics())
      GTEST_SKIP() << "no atomics: every mutex is managed";
  }
  void run(int size, const std::function<void(Fabric&, DistributedMutex&)>& body) {
    run_ranks({.kind = GetParam().peers, .size = size, .killed = {}, .configure = {}},
              [&](Fabric& fabric) {
                const auto mutex = make_mutex(fabric, GetParam().is_managed, Rank(size - 1));
                body(fabric, *mutex);
                meet(fabric, *mutex, "end of the mutex");
              });
  }
};

TEST_P(MutexTest, OneAtATime) {
  struct Counter {
    Plain<std::uint64_t> value;
  };
  const Shared<Counter> counter;
  constexpr int kRanks = 4;
  // Over a network every turn takes a few latencies: milliseconds where the devices of verbs are
  // emulated on a busy host.
  const std::string name = transport_name();
  const std::uint64_t rounds = (name == "shm"                    ? 100'000
                                : name == "ucx" || name == "tcp" ? 10'000
                                                                 : 1'000) /
                               kRanks;
  run(kRanks, [&](Fabric& fabric, DistributedMutex& mutex) {
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const auto locked = mutex.lock(kTimeout);
      ASSERT_TRUE(locked) << "round " << round << ": " << locked.status().to_string();
      ASSERT_EQ(*locked, LockOutcome::kLocked);
      counter->value = counter->value + 1;
      const Status unlocked = mutex.unlock(kTimeout);
      ASSERT_TRUE(unlocked.is_ok()) << unlocked.to_string();
    }
    meet(fabric, mutex, "counted");
    EXPECT_EQ(std::uint64_t{counter->value}, rounds * kRanks);
  });
}

// The owner rank waits in a barrier, and calls nothing of the mutex.
TEST_P(MutexTest, TheOwnerRankServesInEveryWait) {
  run(2, [&](Fabric& fabric, DistributedMutex& mutex) {
    if (fabric.rank() == Rank(0)) {
      for (int round = 0; round < 10; ++round) {
        const auto locked = mutex.lock(kTimeout);
        ASSERT_TRUE(locked) << locked.status().to_string();
        const Status unlocked = mutex.unlock(kTimeout);
        ASSERT_TRUE(unlocked.is_ok()) << unlocked.to_string();
      }
    }
    const Status met = fabric.bootstrap().barrier("locked", 2 * kTimeout);
    EXPECT_TRUE(met.is_ok()) << met.to_string();
  });
}

// The rank that waits longest is next, also before the one that held the mutex.
TEST_P(MutexTest, FirstComeFirstServed) {
  struct Log {
    Plain<int> entries;
    Plain<int> rank[16];
  };
  const Shared<Log> log;
  constexpr int kRanks = 4;
  run(kRanks, [&](Fabric& fabric, DistributedMutex& mutex) {
    const int self = fabric.rank().value();
    const auto note = [&] {
      log->rank[log->entries] = self;
      log->entries = log->entries + 1;
    };
    // A first request may have to connect.
    ASSERT_TRUE(mutex.lock(kTimeout));
    ASSERT_TRUE(mutex.unlock(kTimeout).is_ok());
    meet(fabric, mutex, "connected");
    if (self == 0) {
      ASSERT_TRUE(mutex.lock(kTimeout));
      note();
    }
    meet(fabric, mutex, "locked");
    for (int turn = 1; turn < kRanks; ++turn) {
      if (self == turn) {
        ASSERT_TRUE(post(fabric, [&] { return mutex.start(); }).is_ok());
        EXPECT_EQ(mutex.start().code(), Code::kInvalidArgument);
        await_place_in_line(fabric, mutex, Rank(kRanks - 1));
      }
      meet(fabric, mutex, "asked " + std::to_string(turn));
      // The owner rank has seen the request before the next one starts. To meet may have taken no
      // progress of the fabric.
      fabric.progress();
      EXPECT_TRUE(mutex.progress().is_ok());
      meet(fabric, mutex, "turn " + std::to_string(turn));
    }
    if (self == 0) {
      ASSERT_TRUE(mutex.unlock(kTimeout).is_ok());
      ASSERT_TRUE(mutex.lock(kTimeout));
    } else {
      EXPECT_TRUE(progress_until(fabric, [&] { return mutex.test().is_ok(); }));
    }
    note();
    ASSERT_TRUE(mutex.unlock(kTimeout).is_ok());
    meet(fabric, mutex, "all had it");
    ASSERT_EQ(int{log->entries}, kRanks + 1);
    for (int i = 0; i <= kRanks; ++i) EXPECT_EQ(int{log->rank[i]}, i % kRanks);
  });
}

TEST_P(MutexTest, ALockThatTimesOutWithdraws) {
  run(3, [&](Fabric& fabric, DistributedMutex& mutex) {
    const bool is_holder = fabric.rank() == Rank(0);
    EXPECT_EQ(mutex.start_unlock().code(), Code::kInvalidArgument);
    EXPECT_EQ(mutex.cancel().code(), Code::kInvalidArgument);
    EXPECT_EQ(mutex.test().status().code(), Code::kInvalidArgument);
    if (is_holder) {
      ASSERT_TRUE(mutex.lock(kTimeout));
    }
    meet(fabric, mutex, "held");
    if (!is_holder) {
      const auto late = mutex.lock(std::chrono::milliseconds(50));
      EXPECT_EQ(late.status().code(), Code::kDeadlineExceeded) << late.status().to_string();
      EXPECT_FALSE(mutex.is_held());
      EXPECT_EQ(mutex.unlock(kTimeout).code(), Code::kInvalidArgument);
    }
    meet(fabric, mutex, "too late");
    if (is_holder) {
      // No rank waits any more, so the mutex can be locked again at once.
      for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(mutex.unlock(kTimeout).is_ok());
        ASSERT_TRUE(mutex.lock(kTimeout));
      }
      ASSERT_TRUE(mutex.unlock(kTimeout).is_ok());
    }
    meet(fabric, mutex, "unlocked");
    const auto locked = mutex.lock(kTimeout);
    ASSERT_TRUE(locked) << locked.status().to_string();
    EXPECT_EQ(*locked, LockOutcome::kLocked);
    ASSERT_TRUE(mutex.unlock(kTimeout).is_ok());
  });
}

// Timeouts at any moment, short enough for grants and withdrawals to cross.
TEST_P(MutexTest, ShortTimeoutsBreakNothing) {
  struct Counter {
    Plain<std::uint64_t> value;
    Plain<std::uint64_t> expected[4];
  };
  const Shared<Counter> counter;
  run(4, [&](Fabric& fabric, DistributedMutex& mutex) {
    std::uint64_t locked = 0;
    for (int round = 0; round < 20000; ++round) {
      if (!progress_until(fabric, [&] {
            const Status status = mutex.start();
            EXPECT_FALSE(status.is_error()) << status.to_string();
            return status.is_ok();
          })) {
        FAIL() << "round " << round << " never starts";
      }
      bool is_locked = false;
      for (int look = 0; look < round % 40 && !is_locked; ++look) {
        fabric.progress();
        is_locked = mutex.test().is_ok();
      }
      if (!is_locked) {
        ASSERT_TRUE(mutex.cancel().is_ok());
        continue;
      }
      ++locked;
      counter->value = counter->value + 1;
      ASSERT_TRUE(mutex.start_unlock().is_ok());
    }
    // However the rounds ended, every rank can lock the mutex.
    ASSERT_TRUE(mutex.lock(kTimeout));
    counter->value = counter->value + 1;
    ASSERT_TRUE(mutex.unlock(kTimeout).is_ok());
    counter->expected[fabric.rank().index()] = locked + 1;
    meet(fabric, mutex, "done");
    std::uint64_t sum = 0;
    for (const auto& one : counter->expected) sum += one;
    EXPECT_EQ(std::uint64_t{counter->value}, sum);
  });
}

// The coordinator, which alone could shut the holder out, has ended with it. It is made up: the
// holder lives, and the others believe that both are gone.
TEST_P(MutexTest, WhoseHolderDiedWithItsCoordinatorIsLost) {
  run_ranks(
      {.kind = GetParam().peers, .size = 3, .killed = {}, .configure = {}}, [&](Fabric& fabric) {
        Bootstrap& bootstrap = fabric.bootstrap();
        // A death while UCX connects over TCP may abort the process (transports/ucx/README.md).
        connect_all(fabric, "connected");
        const auto mutex = make_mutex(fabric, GetParam().is_managed, Rank(1));
        if (fabric.rank() == Rank(0)) {
          ASSERT_TRUE(mutex->lock(kTimeout));
        }
        meet(fabric, *mutex, "held");
        if (fabric.rank() != Rank(0)) {
          bootstrap.fences().lose_coordinator(Status(Code::kUnavailable, "rank 0 is gone"));
          fabric.peers().mark(Rank(0), PeerState::kDead, "made up");
          const auto locked = mutex->lock(kTimeout);
          EXPECT_EQ(locked.status().code(), Code::kUnavailable) << locked.status().to_string();
          EXPECT_EQ(mutex->start().code(), Code::kUnavailable) << "it stays lost";
        }
        EXPECT_TRUE(bootstrap.barrier("looked", 2 * kTimeout).is_ok());
      });
}

// A rank that is cut off may have been declared dead, and another one may hold the mutex.
TEST_P(MutexTest, ARankThatIsCutOffHoldsNothing) {
  run_ranks({.kind = GetParam().peers, .size = 2, .killed = {}, .configure = {}},
            [&](Fabric& fabric) {
              const auto mutex = make_mutex(fabric, GetParam().is_managed, Rank(1));
              if (fabric.rank() == Rank(0)) {
                ASSERT_TRUE(mutex->lock(kTimeout));
                EXPECT_TRUE(mutex->is_held());
                fabric.bootstrap().fences().cut_off(Status(Code::kClosed, "by the test"));
                EXPECT_FALSE(mutex->is_held());
                EXPECT_EQ(mutex->start_unlock().code(), Code::kClosed);
                EXPECT_EQ(mutex->start().code(), Code::kClosed);
              }
              EXPECT_TRUE(fabric.bootstrap().barrier("seen", 2 * kTimeout).is_ok());
            });
}

// What a member has published comes from the network.
TEST(MutexOffer, WithAnUnknownScopeOfAtomicsIsRefused) {
  run_ranks({.kind = PeerKind::kThreads, .size = 2, .killed = {}, .configure = {}},
            [&](Fabric& fabric) {
              MutexOptions options;
              options.name = "forged";
              options.membership.members = {Rank(0), Rank(1)};
              options.owner_rank = Rank(0);
              if (fabric.rank() == Rank(1)) {
                ByteWriter offer;
                offer.number(std::uint32_t{2}).number(std::int32_t{0}).number(std::uint32_t{0});
                offer.number(std::uint8_t{0}).text(transport_name());
                offer.number(std::uint8_t{1}).number(std::uint8_t{2});  // the scope
                offer.text("host").blob({});
                ASSERT_TRUE(fabric.bootstrap().publish("mutex/forged/0#1", offer.take()).is_ok());
              } else {
                auto mutex = DistributedMutex::prepare(fabric, options);
                ASSERT_TRUE(mutex.is_ok()) << mutex.status().to_string();
                const Status status = (*mutex)->connect();
                EXPECT_EQ(status.code(), Code::kCorrupted) << status.to_string();
                EXPECT_EQ(status.peer(), Rank(1));
              }
              EXPECT_TRUE(fabric.bootstrap().barrier("end", kTimeout).is_ok());
            });
}

// Named so that runs over transports that don't survive a killed peer leave it out.
class PeerDeathWithAMutex : public ::testing::TestWithParam<bool> {};

TEST_P(PeerDeathWithAMutex, IsSucceededByOneRankThatIsTold) {
  const bool is_managed = GetParam();
  if (!is_managed && !has_atomics()) GTEST_SKIP() << "no atomics: every mutex is managed";
  const Shared<std::atomic<int>> inheritors;
  const Shared<std::atomic<int>> withdrawals;
  run_ranks(
      {.kind = PeerKind::kProcesses, .size = 4, .killed = {2}, .configure = with_slow_heartbeats},
      [&](Fabric& fabric) {
        const auto mutex = make_mutex(fabric, is_managed, Rank(0));
        const Rank victim(2);
        // UCX 1.13 over TCP ends a process whose peer dies while the two are still connecting, so
        // all lanes have to carry something before.
        Exposed memory(fabric, "greetings", 64, 8);
        for (int peer = 0; peer < fabric.size(); ++peer) {
          transport::Lane* const lanes[] = {&memory.link(peer).data(),
                                            &memory.link(peer).control()};
          for (std::size_t lane = 0; lane < 2; ++lane) {
            const auto cell = memory.cell_at(peer, lane * 4 + fabric.rank().index());
            ASSERT_TRUE(post(fabric, [&] {
                          return lanes[lane]->notify(notification(cell, 1), nullptr);
                        }).is_ok());
          }
        }
        for (std::size_t cell = 0; cell < 8; ++cell)
          ASSERT_TRUE(await_cell(fabric, memory.cell(cell), 1));
        meet(fabric, *mutex, "greeted");
        if (fabric.rank() == victim) {
          ASSERT_TRUE(mutex->lock(kTimeout));
        }
        meet(fabric, *mutex, "held");
        if (fabric.rank() == victim) {
          // The others are probably waiting by then. The test holds if they are not.
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          const std::int64_t now = fabric.clock().now().time_since_epoch().count();
          ASSERT_TRUE(fabric.bootstrap().publish("died", ByteWriter().number(now).take()).is_ok());
          kill(getpid(), SIGKILL);
        }
        auto locked = mutex->lock(kTimeout);
        // The first one that is told withdraws, so that the next one has to be told.
        if (locked && *locked == LockOutcome::kLockedAfterDeath && withdrawals->fetch_add(1) == 0) {
          ASSERT_TRUE(mutex->cancel().is_ok());
          locked = mutex->lock(kTimeout);
        }
        const TimePoint locked_at = fabric.clock().now();
        ASSERT_TRUE(locked) << locked.status().to_string();
        if (*locked == LockOutcome::kLockedAfterDeath) {
          inheritors->fetch_add(1);
          const auto died = fabric.bootstrap().lookup("died", std::chrono::seconds(10));
          ASSERT_TRUE(died.is_ok()) << died.status().to_string();
          const TimePoint death(Duration(ByteReader(*died).number<std::int64_t>()));
          // It takes milliseconds. A loaded host doesn't reach this limit, so it needs no factor.
          EXPECT_LT(to_seconds(locked_at - death), 20.0);
        }
        ASSERT_TRUE(mutex->unlock(kTimeout).is_ok());
        meet(fabric, *mutex, "all had it");
        // From then on it is an ordinary mutex of the survivors.
        for (int round = 0; round < 100; ++round) {
          const auto again = mutex->lock(kTimeout);
          ASSERT_TRUE(again) << again.status().to_string();
          EXPECT_EQ(*again, LockOutcome::kLocked);
          ASSERT_TRUE(mutex->unlock(kTimeout).is_ok());
        }
        meet(fabric, *mutex, "end of the mutex");
        EXPECT_EQ(inheritors->load(), 1);
      });
}

// Waiting ranks hear that the owner rank is gone.
TEST_P(PeerDeathWithAMutex, OfTheOwnerRankIsReported) {
  const bool is_managed = GetParam();
  // Without atomics, the ranks that wait for the owner rank make its connections.
  if (!has_atomics()) GTEST_SKIP() << "covered by its death as a holder";
  run_ranks(
      {.kind = PeerKind::kProcesses, .size = 3, .killed = {0}, .configure = with_slow_heartbeats},
      [&](Fabric& fabric) {
        const auto mutex = make_mutex(fabric, is_managed, Rank(0));
        if (fabric.rank() == Rank(0)) {
          ASSERT_TRUE(mutex->lock(kTimeout));
        }
        meet(fabric, *mutex, "held");
        if (fabric.rank() == Rank(0)) kill(getpid(), SIGKILL);
        const auto locked = mutex->lock(kTimeout);
        EXPECT_EQ(locked.status().code(), Code::kPeerDead) << locked.status().to_string();
        EXPECT_EQ(locked.status().peer(), Rank(0));
      });
}

std::string name_of(const Kind& kind) {
  return to_string(kind.peers) + (kind.is_managed ? "_managed" : "_words");
}

INSTANTIATE_TEST_SUITE_P(Kinds, MutexTest,
                         ::testing::Values(Kind{PeerKind::kThreads, false},
                                           Kind{PeerKind::kThreads, true},
                                           Kind{PeerKind::kProcesses, false},
                                           Kind{PeerKind::kProcesses, true}),
                         [](const auto& kind) { return name_of(kind.param); });
INSTANTIATE_TEST_SUITE_P(PeerDeath, PeerDeathWithAMutex, ::testing::Bool(),
                         [](const auto& managed) {
                           return std::string(managed.param ? "managed" : "words");
                         });

}  // namespace
}  // namespace dunlin::testing
