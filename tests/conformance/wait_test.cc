// Waiting, and progressing seldom, over every transport: a sleeping rank is woken, a rank that
// computes can be connected to, and a wait for a rank that never answers ends at its deadline.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator/communicator.h"
#include "tests/conformance/shared.h"

namespace dunlin::testing {
namespace {

using transport::Completion;
using transport::Fabric;

class WaitTest : public ::testing::TestWithParam<PeerKind> {
 protected:
  void run(const RankBody& body) {
    run_ranks({.kind = GetParam(), .size = 2, .killed = {}, .configure = {}}, body);
  }
};

// A sleeper wakes when something arrives. A sleeping Waiter polls every 50 ms by itself, so that
// without being woken no wait would be short. A busy host prolongs many waits, as each has to get a
// core for two ranks in turn. So half of the waits of a set have to be short and no more, and the
// ranks do further sets until each of them has had one like that. This shows that sleepers are
// woken. It doesn't show a fault that loses less than half of what should wake them.
TEST_P(WaitTest, ANotificationWakesASleeper) {
  const RunOptions options{
      .kind = GetParam(), .size = 2, .killed = {}, .configure = [](Config& config) {
        config.wait = WaitMode::kEvent;
      }};
  const SharedCount satisfied;  // the ranks that have had a set with enough short waits
  run_ranks(options, [&](Fabric& fabric) {
    constexpr std::uint64_t kMostSets = 10;
    constexpr std::uint64_t kRounds = 200;  // of a set
    Exposed memory(fabric, "sleep", 64, 1);
    const int peer = 1 - fabric.rank().value();
    std::uint64_t most = 0;  // short waits of a set
    // Both ranks read the same count, as it grows at the end of a set, which takes both ranks.
    for (std::uint64_t set = 0; set < kMostSets && satisfied->load() < 2; ++set) {
      std::uint64_t short_waits = 0;
      for (std::uint64_t round = set * kRounds + 1; round <= (set + 1) * kRounds; ++round) {
        const bool is_first = fabric.rank() == Rank(0);
        for (const bool is_sending : {is_first, !is_first}) {
          if (is_sending) {
            ASSERT_TRUE(post(fabric, [&] {
                          return memory.data(peer).notify(
                              notification(memory.cell_at(peer, 0), round), nullptr);
                        }).is_ok());
          } else {
            const TimePoint began = fabric.clock().now();
            const Status status = fabric.wait(
                [&] {
                  return fabric.board().sequence(memory.cell(0)) >= round ? Status::ok()
                                                                          : Status::busy();
                },
                [&] {
                  return std::vector<transport::Awaited>{{Rank(peer), "a ping"}};
                },
                std::chrono::seconds(20) * timeout_factor());
            ASSERT_TRUE(status.is_ok()) << status.to_string();
            if (fabric.clock().now() - began < std::chrono::milliseconds(25)) ++short_waits;
          }
        }
      }
      const bool is_first_such = most < kRounds / 2 && short_waits >= kRounds / 2;
      if (is_first_such) satisfied->fetch_add(1);
      most = std::max(most, short_waits);
      sync(fabric, "set " + std::to_string(set));
    }
    EXPECT_GE(most, kRounds / 2);
  });
}

// A peer that computes for long between two calls of progress() can be connected to all the same,
// before it has called it many times.
TEST_P(WaitTest, APeerThatSeldomProgressesIsConnectedTo) {
  run([](Fabric& fabric) {
    constexpr auto kWork = std::chrono::milliseconds(20);
    constexpr int kMostTurns = 250;
    const auto cell = fabric.board().allocate(1).value();
    if (fabric.rank() == Rank(1)) {
      ASSERT_TRUE(fabric.bootstrap().publish("works", {}).is_ok());
      int turns = 0;
      ASSERT_TRUE(progress_until(fabric, [&] {
        std::this_thread::sleep_for(kWork);
        ++turns;
        return fabric.board().sequence(cell) == 1;
      }));
      EXPECT_LE(turns, kMostTurns);
      return;
    }
    ASSERT_TRUE(fabric.bootstrap().lookup("works", timeout_factor() * std::chrono::seconds(10)));
    auto link = fabric.link(Rank(1));
    ASSERT_TRUE(link) << link.status().to_string();
    Completion done;
    ASSERT_TRUE(
        post(fabric, [&] { return (*link)->data().notify(notification(cell, 1), &done); }).is_ok());
    ASSERT_TRUE(progress_until(fabric, [&] { return done.is_done(); }));
  });
}

TEST_P(WaitTest, AWaitInVainEndsAtItsDeadlineAndSaysSo) {
  run([](Fabric& fabric) {
    const Status status =
        fabric.wait([] { return Status::busy(); },
                    [] {
                      return std::vector<transport::Awaited>{{Rank(1), "model 17"}};
                    },
                    std::chrono::milliseconds(30));
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
    EXPECT_NE(status.message().find("for model 17 from rank 1"), std::string::npos)
        << status.to_string();
  });
}

// A death becomes known between a look at the condition and the look at the peers. What is waited
// for goes on without the dead rank then, and the wait goes on with it.
TEST(WaitForSurvivors, ADeathThatTheConditionSurvivesIsNotReported) {
  run_ranks({.kind = PeerKind::kThreads, .size = 2, .killed = {}, .configure = {}},
            [](Fabric& fabric) {
              sync(fabric, "begun");
              const Rank peer(1 - fabric.rank().value());
              int calls = 0;
              const auto ready = [&] {
                if (++calls == 1) fabric.peers().mark(peer, PeerState::kDead, "by the test");
                return calls < 4 ? Status::busy() : Status::ok();
              };
              const auto describe = [&] {
                return calls == 1 ? std::vector<transport::Awaited>{{peer, "its part"}}
                                  : std::vector<transport::Awaited>{};
              };
              const Status status = fabric.wait(ready, describe, std::chrono::seconds(20));
              EXPECT_TRUE(status.is_ok()) << status.to_string();
              const Status vain =
                  fabric.wait([] { return Status::busy(); },
                              [&] {
                                return std::vector<transport::Awaited>{{peer, "its part"}};
                              },
                              std::chrono::seconds(20));
              EXPECT_EQ(vain.code(), Code::kPeerDead) << vain.to_string();
            });
}

bool connects_by_progress_of_both() {
  return Config::from_environment().value().transports.front() == "ucx";
}

// What a lane has taken arrives even if its owner makes no more progress, however late the peer is
// to connect.
TEST_P(WaitTest, WhatALaneHasTakenNeedsNoProgressOfItsOwner) {
  if (connects_by_progress_of_both()) GTEST_SKIP() << "UCX connects by progress of both sides";
  const SharedCount arrived;
  run([&](Fabric& fabric) {
    const auto cell = fabric.board().allocate(1).value();
    if (fabric.rank() == Rank(1)) {
      ASSERT_TRUE(fabric.bootstrap().publish("allocated", {}).is_ok());
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      EXPECT_TRUE(progress_until(fabric, [&] { return fabric.board().sequence(cell) == 1; }));
      arrived->fetch_add(1);
      return;
    }
    ASSERT_TRUE(
        fabric.bootstrap().lookup("allocated", timeout_factor() * std::chrono::seconds(10)));
    auto link = fabric.link(Rank(1));
    ASSERT_TRUE(link) << link.status().to_string();
    ASSERT_TRUE(post(fabric, [&] {
                  return (*link)->data().notify(notification(cell, 1), nullptr);
                }).is_ok());
    EXPECT_TRUE(await_count(arrived, 1));
  });
}

// After their first barrier, ranks may compute for long. The others do not need their progress, to
// get the messages that they have left, or to connect.
TEST_P(WaitTest, TheFirstBarrierNeedsNoProgressOfRanksThatHaveReturned) {
  if (connects_by_progress_of_both()) GTEST_SKIP() << "UCX connects by progress of both sides";
  constexpr int kRanks = 4;
  const SharedCount returned;
  run_ranks({.kind = GetParam(), .size = kRanks, .killed = {}, .configure = {}},
            [&](Fabric& fabric) {
              const auto communicator = collective::Communicator::create(fabric, {}).value();
              const Status status = communicator->barrier();
              EXPECT_TRUE(status.is_ok()) << status.to_string();
              returned->fetch_add(1);
              EXPECT_TRUE(await_count(returned, kRanks));
            });
}

TEST_P(WaitTest, TasksGoOnAfterOneHasThrown) {
  run([](Fabric& fabric) {
    int runs = 0;
    const Fabric::Task task(fabric, [&] {
      if (++runs == 1) throw std::bad_alloc();
    });
    EXPECT_THROW(fabric.progress(), std::bad_alloc);
    fabric.progress();
    EXPECT_EQ(runs, 2);
    sync(fabric, "ran");
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, WaitTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

}  // namespace
}  // namespace dunlin::testing
