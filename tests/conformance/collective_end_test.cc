// Collectives of which a member dies, or that are given up: what the others are told, and whose the
// memory is then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <vector>

#include "collectives/communicator/communicator.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::Call;
using collective::Collective;
using collective::Communicator;
using transport::Fabric;

// The members that don't wait for the dead member itself get the error, too.
TEST(CollectiveEnd, ADeathEndsItForEveryMember) {
  run_ranks(
      {.kind = PeerKind::kProcesses, .size = 4, .killed = {3}, .configure = {}},
      [](Fabric& fabric) {
        auto communicator = Communicator::create(fabric, {}).value();
        std::vector<float> values(20'000, 1);
        const auto reduce = [&] {
          return communicator->run(
              {Collective::kAllReduce, values.data(), values.data(), values.size(), {}, 0, "ring"});
        };
        for (int i = 0; i < 3; ++i) ASSERT_TRUE(reduce().is_ok());
        sync(fabric, "all are in");
        if (fabric.rank() == Rank(3)) raise(SIGKILL);
        const TimePoint began = fabric.clock().now();
        Status status;
        while (status.is_ok()) status = reduce();
        EXPECT_EQ(status.code(), Code::kPeerDead) << status.to_string();
        EXPECT_EQ(status.peer(), Rank(3)) << status.to_string();
        EXPECT_LT(to_seconds(fabric.clock().now() - began), 2.0 * timeout_factor());
      });
}

// Before the members know one another, they meet by the coordinator, which knows of the death.
TEST(CollectiveEnd, ADeathBeforeTheStartIsNoticedAtOnceAndNamed) {
  run_ranks({.kind = PeerKind::kProcesses, .size = 4, .killed = {3}, .configure = {}},
            [](Fabric& fabric) {
              sync(fabric, "all are in");
              const TimePoint began = fabric.clock().now();
              if (fabric.rank() == Rank(3)) raise(SIGKILL);
              const Status status = Communicator::create(fabric, {}).status();
              EXPECT_EQ(status.code(), Code::kPeerDead) << status.to_string();
              EXPECT_EQ(status.peer(), Rank(3)) << status.to_string();
              EXPECT_LT(to_seconds(fabric.clock().now() - began), 2.0 * timeout_factor());
            });
}

// Rank 1 leaves because rank 2 has died. Rank 0 is told of the death, whether its call fails at
// once or later.
TEST(CollectiveEnd, TheDeathIsNamedAndNotARankThatLeftBecauseOfIt) {
  run_ranks({.kind = PeerKind::kProcesses, .size = 3, .killed = {2}, .configure = {}},
            [](Fabric& fabric) {
              auto communicator = Communicator::create(fabric, {}).value();
              connect_all(fabric, "connected");
              std::vector<float> values(1000, 1);
              Call call{Collective::kAllReduce, values.data(), values.data(), values.size()};
              ASSERT_TRUE(communicator->run(call).is_ok());
              sync(fabric, "all are in");
              if (fabric.rank() == Rank(2)) raise(SIGKILL);
              if (fabric.rank() == Rank(1)) return;
              PeerTable& peers = fabric.bootstrap().peers();
              ASSERT_TRUE(
                  progress_until(fabric, [&] { return peers.state(Rank(2)) == PeerState::kDead; }));
              peers.mark(Rank(1), PeerState::kLeft, "it has shut down");
              const auto request = communicator->start(call);
              Status status = request.status();
              while (request && (status.is_ok() || status.is_busy()))
                status = communicator->test(*request);
              EXPECT_EQ(status.code(), Code::kPeerDead) << status.to_string();
              EXPECT_EQ(status.peer(), Rank(2)) << status.to_string();
            });
}

// Rank 2 dies in a call that rank 0 has not made yet. Rank 1 gets the error, and its memory is its
// own again, though rank 0 makes the call then.
TEST(CollectiveEnd, ADeathGivesTheMemoryBack) {
  run_ranks(
      {.kind = PeerKind::kProcesses, .size = 3, .killed = {2}, .configure = {}},
      [](Fabric& fabric) {
        auto communicator = Communicator::create(fabric, {}).value();
        connect_all(fabric, "connected");  // UCX may abort where a peer dies while it connects
        std::vector<float> values(1000, 1);
        const Call call{
            Collective::kReduce, values.data(), values.data(), values.size(), {}, 1, "tree"};
        ASSERT_TRUE(communicator->run(call).is_ok());
        std::ranges::fill(values, 1.0F);
        sync(fabric, "all are in");
        Bootstrap& bootstrap = fabric.bootstrap();
        const Duration limit = std::chrono::seconds(60) * timeout_factor();
        const auto is_told = [&](const std::string& key) {
          return bootstrap.lookup(key, Duration::zero()).is_ok();
        };
        if (fabric.rank() == Rank(0)) {
          ASSERT_TRUE(bootstrap.lookup("rank 1 has the error", limit).is_ok());
          (void)communicator->start(call);
          for (int i = 0; i < 1000; ++i) communicator->progress();
          ASSERT_TRUE(bootstrap.publish("rank 0 has made the call", {}).is_ok());
          ASSERT_TRUE(bootstrap.lookup("rank 1 has looked", limit).is_ok());
          return;
        }
        const auto request = communicator->start(call);
        ASSERT_TRUE(request.is_ok()) << request.status().to_string();
        if (fabric.rank() == Rank(2)) {
          for (int i = 0; i < 1000; ++i) communicator->progress();
          raise(SIGKILL);
        }
        const Status status = communicator->wait(*request, limit);
        EXPECT_EQ(status.code(), Code::kPeerDead) << status.to_string();
        ASSERT_TRUE(bootstrap.publish("rank 1 has the error", {}).is_ok());
        ASSERT_TRUE(progress_until(fabric, [&] { return is_told("rank 0 has made the call"); }));
        for (int i = 0; i < 1000; ++i) fabric.progress();
        EXPECT_THAT(values, ::testing::Each(1.0F));
        EXPECT_EQ(communicator->test(*request).code(), Code::kPeerDead);
        ASSERT_TRUE(bootstrap.publish("rank 1 has looked", {}).is_ok());
      });
}

// A member that comes too late sends its choice when this one has given up. A sanitizer would see
// it arrive in memory that was freed.
TEST(CollectiveEnd, ASplitThatIsGivenUpLeavesItsMemory) {
  run_ranks(
      {.kind = PeerKind::kThreads,
       .size = 2,
       .killed = {},
       .configure =
           [](Config& config) { config.deadline = std::chrono::seconds(1) * timeout_factor(); }},
      [](Fabric& fabric) {
        // Each member waits until the deadline of its split, so the deadline is short.
        // Connecting has a limit of its own, as it may take longer.
        auto communicator = Communicator::prepare(fabric, {}).value();
        const Status connected = communicator->connect(std::chrono::seconds(60) * timeout_factor());
        ASSERT_TRUE(connected.is_ok()) << connected.to_string();
        if (fabric.rank() == Rank(0)) {
          const Status status = communicator->split(0, 0).status();
          EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
          sync(fabric, "rank 0 has given up");
          sync(fabric, "rank 1 has come");
          for (int i = 0; i < 1000; ++i) fabric.progress();
        } else {
          sync(fabric, "rank 0 has given up");
          EXPECT_FALSE(communicator->split(0, 0).is_ok());
          sync(fabric, "rank 1 has come");
        }
        sync(fabric, "the end");
      });
}

// Ranks that don't spin use another wait than ranks that do.
TEST(CollectiveEnd, ADeathAfterItsEndLeavesACallAlone) {
  run_ranks(
      {.kind = PeerKind::kProcesses,
       .size = 3,
       .killed = {2},
       .configure = [](Config& config) { config.spin_iterations = 0; }},
      [](Fabric& fabric) {
        auto communicator = Communicator::create(fabric, {}).value();
        Call barrier;
        barrier.collective = Collective::kBarrier;
        const auto request = communicator->start(barrier);
        ASSERT_TRUE(request.is_ok()) << request.status().to_string();
        ASSERT_TRUE(progress_until(fabric, [&] { return communicator->test(*request).is_ok(); }));
        sync(fabric, "all are through");
        if (fabric.rank() == Rank(2)) raise(SIGKILL);
        ASSERT_TRUE(progress_until(fabric, [&] { return !fabric.peers().is_present(Rank(2)); }));
        const Status status = communicator->wait(*request, std::chrono::seconds(1));
        EXPECT_TRUE(status.is_ok()) << status.to_string();
        EXPECT_EQ(communicator->barrier().code(), Code::kPeerDead);
      });
}

}  // namespace
}  // namespace dunlin::testing
