// A peer that dies in the middle of its work: every rank that waits for it learns of the death,
// pending operations complete, and the other lanes go on. Processes only: the death is a real
// SIGKILL.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <vector>

#include "collectives/communicator/communicator.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using transport::Awaited;
using transport::Completion;
using transport::Fabric;

// The death itself has to become known. The heartbeats that stay away would tell of it after ten
// minutes, longer than any wait here.
void with_slow_heartbeats(Config& config) {
  config.heartbeat = std::chrono::seconds(60);
}

// Every rank hears from every other one on both lanes. UCX 1.13 (over TCP) ends a process whose
// peer dies while the two are still connecting (transports/ucx/README.md), so no rank may die
// before that.
void greet(Fabric& fabric, Exposed& memory) {
  const auto size = static_cast<std::size_t>(fabric.size());
  const std::size_t self = fabric.rank().index();
  for (std::size_t peer = 0; peer < size; ++peer) {
    transport::Link& link = memory.link(static_cast<int>(peer));
    transport::Lane* const lanes[] = {&link.data(), &link.control()};
    for (std::size_t lane = 0; lane < 2; ++lane) {
      const auto greeting =
          notification(memory.cell_at(static_cast<int>(peer), lane * size + self), 1);
      ASSERT_TRUE(post(fabric, [&] { return lanes[lane]->notify(greeting, nullptr); }).is_ok());
    }
  }
  for (std::size_t cell = 0; cell < 2 * size; ++cell) {
    ASSERT_TRUE(await_cell(fabric, memory.cell(cell), 1));
  }
  sync(fabric, "greeted");
}

// It takes milliseconds. The limit is one that a loaded host doesn't reach, so it needs no factor.
TEST(PeerDeath, IsNoticedByEveryRankThatWaits) {
  run_ranks(
      {.kind = PeerKind::kProcesses, .size = 3, .killed = {2}, .configure = with_slow_heartbeats},
      [](Fabric& fabric) {
        Exposed memory(fabric, "death", 1 << 20, 7);
        greet(fabric, memory);
        if (fabric.rank() == Rank(2)) {
          // It dies with puts in progress.
          for (int i = 0; i < 50; ++i) {
            (void)memory.data(0).put(memory.local().whole(), memory.at(0).whole(), nullptr);
            fabric.progress();
          }
          // The clock is the same for all processes of the host.
          const std::int64_t now = fabric.clock().now().time_since_epoch().count();
          ASSERT_TRUE(fabric.bootstrap().publish("died", ByteWriter().number(now).take()).is_ok());
          kill(getpid(), SIGKILL);
        }
        const Status status =
            fabric.wait([] { return Status::busy(); },
                        [] {
                          return std::vector<Awaited>{{Rank(2), "a model that never comes"}};
                        },
                        std::chrono::seconds(60));
        EXPECT_EQ(status.code(), Code::kPeerDead) << status.to_string();
        EXPECT_EQ(status.peer(), Rank(2));
        EXPECT_NE(status.message().find("a model that never comes"), std::string::npos)
            << status.to_string();
        const TimePoint noticed = fabric.clock().now();
        const auto died = fabric.bootstrap().lookup("died", std::chrono::seconds(10));
        ASSERT_TRUE(died.is_ok()) << died.status().to_string();
        const TimePoint death(Duration(ByteReader(*died).number<std::int64_t>()));
        EXPECT_LT(to_seconds(noticed - death), 20.0);
        EXPECT_EQ(memory.data(2).put(memory.local().whole(), memory.at(2).whole(), nullptr).code(),
                  Code::kPeerDead);

        // The survivors still reach one another.
        const int other = 1 - fabric.rank().value();
        const auto hello = notification(memory.cell_at(other, 6), 1);
        ASSERT_TRUE(complete(fabric, [&](Completion* done) {
                      return memory.data(other).notify(hello, done);
                    }).is_ok());
        ASSERT_TRUE(await_cell(fabric, memory.cell(6), 1));
        const auto membership = fabric.bootstrap().reform(std::chrono::seconds(10));
        ASSERT_TRUE(membership.is_ok()) << membership.status().to_string();
        EXPECT_EQ(membership->epoch, 1u);
        EXPECT_EQ(membership->members, (std::vector<Rank>{Rank(0), Rank(1)}));
      });
}

TEST(PeerDeath, CompletesWhatWasPending) {
  run_ranks(
      {.kind = PeerKind::kProcesses, .size = 2, .killed = {1}, .configure = with_slow_heartbeats},
      [](Fabric& fabric) {
        constexpr std::size_t kOperations = 8;
        constexpr std::size_t kSize = 4 << 20;
        Exposed memory(fabric, "pending", kSize, 4);
        greet(fabric, memory);
        if (fabric.rank() == Rank(1)) kill(getpid(), SIGKILL);
        auto completions = std::make_unique<Completion[]>(kOperations);
        std::size_t posted = 0;
        for (; posted < kOperations; ++posted) {
          const auto here = memory.local().whole();
          const auto there = memory.at(1).whole();
          Completion* const done = &completions[posted];
          const Status status = posted % 2 == 0 ? memory.data(1).put(here, there, done)
                                                : memory.data(1).reads()->get(there, here, done);
          if (!status.is_ok()) break;  // busy, or dead already
        }
        ASSERT_TRUE(progress_until(fabric, [&] {
          for (std::size_t i = 0; i < posted; ++i) {
            if (!completions[i].is_done()) return false;
          }
          return !fabric.peers().is_present(Rank(1));
        }));
        for (std::size_t i = 0; i < posted; ++i) {
          const Code code = completions[i].status().code();
          EXPECT_TRUE(code == Code::kOk || code == Code::kPeerDead)
              << completions[i].status().to_string();
        }
        EXPECT_TRUE(memory.data(1).is_idle());
      });
}

// Every rank puts to the next one and waits for the one before. The puts to a dead peer can't be
// flushed.
TEST(PeerDeath, AFailedCommunicatorIsReleased) {
  run_ranks(
      {.kind = PeerKind::kProcesses, .size = 3, .killed = {2}, .configure = with_slow_heartbeats},
      [](Fabric& fabric) {
        auto communicator = collective::Communicator::create(fabric, {}).value();
        std::vector<float> model(1 << 20, 1);
        const auto reduce = [&] {
          return communicator->run({collective::Collective::kAllReduce,
                                    model.data(),
                                    model.data(),
                                    model.size(),
                                    {collective::DataType::kFloat32, collective::ReduceOp::kSum},
                                    0,
                                    "ring"});
        };
        ASSERT_TRUE(reduce().is_ok());
        sync(fabric, "reduced");
        if (fabric.rank() == Rank(2)) kill(getpid(), SIGKILL);
        const Status status = reduce();
        ASSERT_EQ(status.code(), Code::kPeerDead) << status.to_string();
        communicator.reset();
        EXPECT_TRUE(progress_until(fabric, [&] { return fabric.kept() == 0; }));
      });
}

}  // namespace
}  // namespace dunlin::testing
