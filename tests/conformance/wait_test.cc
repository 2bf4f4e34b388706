// Waiting and seldom progressing, over every transport: who sleeps is woken, who computes is
// connected to, and who waits for nobody is told so.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/support/ranks.h"

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

// A sleeper wakes when something arrives: the wait is long enough that polling alone could not end
// it in time, as a sleeping Waiter looks up every 50 ms only.
TEST_P(WaitTest, ANotificationWakesASleeper) {
  const RunOptions options{
      .kind = GetParam(), .size = 2, .killed = {}, .configure = [](Config& config) {
        config.wait = WaitMode::kEvent;
      }};
  run_ranks(options, [](Fabric& fabric) {
    constexpr std::uint64_t kRounds = 200;
    Exposed memory(fabric, "sleep", 64, 1);
    const int peer = 1 - fabric.rank().value();
    const TimePoint began = fabric.clock().now();
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      const bool is_first = fabric.rank() == Rank(0);
      for (const bool is_sending : {is_first, !is_first}) {
        if (is_sending) {
          ASSERT_TRUE(post(fabric, [&] {
                        return memory.data(peer).notify(
                            notification(memory.cell_at(peer, 0), round), nullptr);
                      }).is_ok());
        } else {
          const Status status = fabric.wait(
              [&] {
                return fabric.board().sequence(memory.cell(0)) >= round ? Status::ok()
                                                                        : Status::busy();
              },
              [&] {
                return std::vector<transport::Awaited>{{Rank(peer), "a ping"}};
              },
              std::chrono::seconds(20));
          ASSERT_TRUE(status.is_ok()) << status.to_string();
        }
      }
    }
    // Waits that slept their 50 ms out each would take 20 s.
    EXPECT_LT(to_seconds(fabric.clock().now() - began), 8.0 * patience());
  });
}

// Who computes for long between two calls of progress() is connected to all the same.
TEST_P(WaitTest, APeerThatSeldomProgressesIsConnectedTo) {
  run([](Fabric& fabric) {
    constexpr auto kWork = std::chrono::milliseconds(20);
    const auto cell = fabric.board().allocate(1).value();
    if (fabric.rank() == Rank(1)) {
      ASSERT_TRUE(fabric.bootstrap().publish("works", {}).is_ok());
      ASSERT_TRUE(progress_until(fabric, [&] {
        std::this_thread::sleep_for(kWork);
        return fabric.board().sequence(cell) == 1;
      }));
      return;
    }
    ASSERT_TRUE(fabric.bootstrap().lookup("works", patience() * std::chrono::seconds(10)));
    const TimePoint began = fabric.clock().now();
    auto link = fabric.link(Rank(1));
    ASSERT_TRUE(link) << link.status().to_string();
    Completion done;
    ASSERT_TRUE(
        post(fabric, [&] { return (*link)->data().notify(notification(cell, 1), &done); }).is_ok());
    ASSERT_TRUE(progress_until(fabric, [&] { return done.is_done(); }));
    EXPECT_LT(to_seconds(fabric.clock().now() - began), 5.0 * patience());
  });
}

TEST_P(WaitTest, AWaitForNobodyEndsAtItsDeadlineAndSaysSo) {
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

INSTANTIATE_TEST_SUITE_P(Peers, WaitTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

}  // namespace
}  // namespace dunlin::testing
