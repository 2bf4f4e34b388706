// What the verbs transport holds for many peers, on a made-up device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/shared.h"
#include "tests/transports/many_peers.h"
#include "tests/transports/verbs_device.h"

namespace dunlin::testing {
namespace {

using transport::Completion;
using transport::Fabric;

constexpr int kRanks = 12;
constexpr std::int64_t kDepth = 8;
// Of one completion queue: for four peers, and for all of them.
constexpr int kFirstSize = 4 * 2 * (kDepth + 8);
constexpr int kWholeSize = kRanks * 2 * (kDepth + 8);

class VerbsScaleTest : public VerbsDeviceTestBase {
 protected:
  VerbsScaleTest() {
    configure_ = [](Config& config) { config.verbs_queue_depth = kDepth; };
  }
  int largest_queue() const { return std::ranges::max(device_.queue_sizes()); }
};

TEST_F(VerbsScaleTest, CompletionQueuesGrowWithTheConnections) {
  make();
  run(
      [this](Fabric& fabric) {
        sync(fabric, "made");
        EXPECT_EQ(largest_queue(), kFirstSize);
        sync(fabric, "seen");
        connect_all(fabric, "all");
      },
      kRanks);
  // 12 peers' queue pairs have more completions than twice the first size.
  EXPECT_GT(largest_queue(), 2 * kFirstSize);
  EXPECT_FALSE(device_.has_overrun());
}

TEST_F(VerbsScaleTest, QueuesThatCannotGrowHaveRoomForAllPeers) {
  for (const bool pretends : {false, true}) {
    make({.can_resize = pretends, .pretends_to_resize = pretends});
    run(
        [this](Fabric& fabric) {
          sync(fabric, "made");
          EXPECT_EQ(largest_queue(), kWholeSize);
          connect_all(fabric, "all");
        },
        kRanks);
    EXPECT_EQ(largest_queue(), kWholeSize);
    EXPECT_FALSE(device_.has_overrun()) << pretends;
  }
}

TEST_F(VerbsScaleTest, AQueueThatIsFullSaysWhatToDo) {
  for (const bool can_resize : {true, false}) {
    make({.can_resize = can_resize, .most_completions = kFirstSize});
    run(
        [](Fabric& fabric) {
          std::string refusal;
          for (int peer = 1; peer < kRanks && fabric.rank() == Rank(0); ++peer) {
            if (const auto link = fabric.link(Rank(peer)); !link)
              refusal = link.status().to_string();
          }
          EXPECT_EQ(refusal.find("DUNLIN_VERBS_QUEUE_DEPTH") != std::string::npos,
                    fabric.rank() == Rank(0))
              << refusal;
          sync(fabric, "done");
        },
        kRanks);
    EXPECT_EQ(largest_queue(), kFirstSize);
  }
}

// Connections are given up and made again, and nothing is lost.
TEST_F(VerbsScaleTest, MorePeersAreSpokenToThanThereAreConnections) {
  constexpr int kMost = 6;
  configure_ = [](Config& config) { config.verbs_max_connections = kMost; };
  make();
  run(
      [this](Fabric& fabric) {
        constexpr std::uint64_t kRounds = 3;
        ManyPeers peers(fabric, "peers");
        for (std::uint64_t number = 1; number <= kRounds; ++number) peers.round(number);
        sync(fabric, "rounds");
        EXPECT_EQ(peers.additions(), kRounds * kRanks);
        // While all speak at once, there may be more of them for a while.
        EXPECT_TRUE(
            progress_until(fabric, [&] { return device_.queue_pairs() <= kMost * kRanks; }));
        sync(fabric, "few");
        peers.round(kRounds + 1);
        sync(fabric, "done");
      },
      kRanks);
}

// One peer after the other: there is always a connection that is idle.
TEST_F(VerbsScaleTest, ThereAreNoMoreThanTheLimit) {
  constexpr int kMost = 8;
  configure_ = [](Config& config) { config.verbs_max_connections = kMost; };
  make();
  run(
      [this](Fabric& fabric) {
        Exposed memory(fabric, "memory", 64, 1);
        EXPECT_EQ(device_.queue_pairs(), 0u) << "links alone need none";
        sync(fabric, "seen");
        for (std::uint64_t number = 1; number <= 3 && fabric.rank() == Rank(0); ++number) {
          for (int peer = 1; peer < kRanks; ++peer) {
            // The notification is not signaled. That does not make the connection look busy.
            EXPECT_TRUE(complete(fabric, [&](auto* c) {
                          return memory.data(peer).flush(transport::Visibility::kRemote, c);
                        }).is_ok());
            EXPECT_TRUE(post(fabric, [&] {
                          return memory.data(peer).notify(
                              notification(memory.cell_at(peer, 0), number), nullptr);
                        }).is_ok());
          }
        }
        if (fabric.rank() != Rank(0)) {
          EXPECT_TRUE(await_cell(fabric, memory.cell(0), 3));
        } else {
          EXPECT_EQ(device_.most_queue_pairs(), kMost / 2) << "the other half is for the peers'";
        }
        sync(fabric, "done");
      },
      kRanks);
}

// A rank that too many peers have connected to asks them to give up what they do not use.
TEST_F(VerbsScaleTest, PeersGiveUpTheirIdleConnections) {
  constexpr int kMost = 4;
  configure_ = [](Config& config) { config.verbs_max_connections = kMost; };
  make();
  run(
      [this](Fabric& fabric) {
        Exposed memory(fabric, "memory", 64, 2 * kRanks);
        for (std::uint64_t number = 1; number <= 2; ++number) {
          if (fabric.rank() != Rank(0)) {
            const std::size_t cell = 2 * fabric.rank().index();
            transport::Link& link = memory.link(0);
            EXPECT_TRUE(post(fabric, [&] {
                          return link.data().notify(notification(memory.cell_at(0, cell), number),
                                                    nullptr);
                        }).is_ok());
            EXPECT_TRUE(post(fabric, [&] {
                          return link.control().notify(
                              notification(memory.cell_at(0, cell + 1), number), nullptr);
                        }).is_ok());
          } else {
            for (std::size_t i = 2; i < 2 * kRanks; ++i)
              EXPECT_TRUE(await_cell(fabric, memory.cell(i), number));
          }
          sync(fabric, "sent " + std::to_string(number));
          // Two connections to rank 0 are left, and each has two ends.
          EXPECT_TRUE(progress_until(fabric, [&] { return device_.queue_pairs() == kMost; }));
          sync(fabric, "left " + std::to_string(number));
        }
      },
      kRanks);
}

// Two lanes share one place, and their user tries again only now and then. What they have taken
// arrives without further progress of their owner.
TEST_F(VerbsScaleTest, AFirstConnectionIsKeptForItsUse) {
  configure_ = [](Config& config) { config.verbs_max_connections = 2; };
  make();
  constexpr int kPeers = 3;
  const SharedCount arrived;
  run(
      [&](Fabric& fabric) {
        Exposed memory(fabric, "memory", 64, 1);
        sync(fabric, "made");
        if (fabric.rank() != Rank(0)) {
          EXPECT_TRUE(await_cell(fabric, memory.cell(0), 1));
          arrived->fetch_add(1);
        } else {
          std::array<bool, kPeers> is_sent{true, false, false};
          const SteadyClock clock;
          EXPECT_TRUE(progress_until(fabric, [&] {
            const TimePoint next = clock.now() + std::chrono::milliseconds(20);
            while (clock.now() < next) fabric.progress();
            for (int peer = 1; peer < kPeers; ++peer) {
              bool& sent = is_sent[static_cast<std::size_t>(peer)];
              sent = sent || memory.data(peer)
                                 .notify(notification(memory.cell_at(peer, 0), 1), nullptr)
                                 .is_ok();
            }
            return std::ranges::count(is_sent, true) == kPeers;
          }));
          EXPECT_TRUE(await_count(arrived, kPeers - 1));
        }
        sync(fabric, "done");
      },
      kPeers);
}

// A lane waits for a peer that computes for longer than the deadline: until it is connected for the
// first time, and with an operation that it has taken, once its connection was given up.
TEST_F(VerbsScaleTest, APeerThatMakesNoProgressIsWaitedFor) {
  constexpr auto kDeadline = std::chrono::seconds(1);
  configure_ = [&](Config& config) {
    config.verbs_max_connections = 2;
    config.deadline = timeout_factor() * kDeadline;
  };
  make();
  constexpr int kPeers = 3;
  run(
      [&](Fabric& fabric) {
        Exposed memory(fabric, "memory", 64, 1);
        const auto notify = [&](int peer, std::uint64_t number) {
          const Status status = post(fabric, [&] {
            return memory.data(peer).notify(notification(memory.cell_at(peer, 0), number), nullptr);
          });
          EXPECT_TRUE(status.is_ok()) << status.to_string();
        };
        for (std::uint64_t number = 1; number <= 2; ++number) {
          sync(fabric, "begin " + std::to_string(number));
          if (fabric.rank() == Rank(0)) {
            for (int peer = 1; peer < kPeers; ++peer) notify(peer, number);
          } else {
            std::this_thread::sleep_for(timeout_factor() *
                                        (kDeadline + std::chrono::milliseconds(500)));
            EXPECT_TRUE(await_cell(fabric, memory.cell(0), number));
          }
          sync(fabric, "end " + std::to_string(number));
        }
      },
      kPeers);
}

// The device has no queue pair left, at this end or then at the peer's, and later it has.
TEST_F(VerbsScaleTest, RoomForAQueuePairIsWaitedFor) {
  configure_ = [](Config& config) {
    config.deadline = timeout_factor() * std::chrono::seconds(10);
    config.verbs_max_connections = 2;
  };
  make();
  run([&](Fabric& fabric) {
    Exposed memory(fabric, "memory", 64, 1);
    sync(fabric, "made");
    // The lanes take turns: each gives its connection up for the other one.
    for (const bool is_first_use : {true, false}) {
      for (const std::size_t most : {0, 1}) {
        if (fabric.rank() == Rank(0)) {
          device_.change([&](FakeVerbs::Options& options) { options.most_pairs = most; });
          transport::Link& link = memory.link(1);
          transport::Lane& lane = most == 0 ? link.data() : link.control();
          Completion done;
          const auto flush = [&] { return lane.flush(transport::Visibility::kRemote, &done); };
          Status status = flush();
          EXPECT_EQ(status.is_busy(), is_first_use) << status.to_string();
          const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
          while (std::chrono::steady_clock::now() < until) {
            fabric.progress();
            if (is_first_use) status = flush();
          }
          EXPECT_EQ(status.is_busy(), is_first_use) << status.to_string();
          EXPECT_FALSE(done.is_done());
          device_.change([](FakeVerbs::Options& options) { options.most_pairs = SIZE_MAX; });
          if (is_first_use) {
            EXPECT_TRUE(post(fabric, flush).is_ok());
          }
          EXPECT_TRUE(progress_until(fabric, [&] { return done.is_done(); }));
          EXPECT_TRUE(done.status().is_ok()) << done.status().to_string();
        }
        sync(fabric, fmt::format("done with {} {}", most, is_first_use));
      }
    }
  });
}

// The lack is named for what it is, once the deadline has passed.
TEST_F(VerbsScaleTest, LackOfQueuePairsIsNotTheDeathOfThePeer) {
  configure_ = [](Config& config) {
    config.deadline = timeout_factor() * std::chrono::seconds(1);
    config.verbs_max_connections = 2;
  };
  make();
  run([&](Fabric& fabric) {
    Exposed memory(fabric, "memory", 64, 1);
    sync(fabric, "made");
    if (fabric.rank() == Rank(0)) {
      device_.change([](FakeVerbs::Options& options) { options.most_pairs = 0; });
      const Status status = complete(
          fabric, [&](auto* c) { return memory.data(1).flush(transport::Visibility::kRemote, c); });
      EXPECT_EQ(status.code(), Code::kResourceExhausted) << status.to_string();
      EXPECT_EQ(memory.data(1).failure().code(), Code::kResourceExhausted);
      device_.change([](FakeVerbs::Options& options) { options.most_pairs = SIZE_MAX; });
    }
    sync(fabric, "done");
  });
}

// Rails get their memory when the lane is used.
TEST_F(VerbsScaleTest, APutWhoseRailsHaveNoMemoryFails) {
  constexpr std::size_t kSize = std::size_t{1} << 20;
  configure_ = [](Config& config) {
    config.verbs_max_connections = 8;
    config.verbs_queue_pairs = 2;
  };
  make();
  run(
      [&](Fabric& fabric) {
        Exposed memory(fabric, "memory", kSize, 1);
        sync(fabric, "made");
        if (fabric.rank() == Rank(0)) {
          EXPECT_TRUE(complete(fabric, [&](auto* c) {
                        return memory.data(1).flush(transport::Visibility::kRemote, c);
                      }).is_ok());
          device_.change([](FakeVerbs::Options& options) { options.most_locked = 64; });
          const Status status = complete(fabric, [&](auto* c) {
            return memory.data(1).put(memory.local().slice(0, kSize).value(),
                                      memory.at(1).slice(0, kSize).value(), c);
          });
          EXPECT_EQ(status.code(), Code::kResourceExhausted) << status.to_string();
          device_.change([](FakeVerbs::Options& options) { options.most_locked = SIZE_MAX; });
        }
        sync(fabric, "done");
      },
      4);
}

// A peer without a connection from here is told that a region was deregistered when it writes.
TEST_F(VerbsScaleTest, PeersThatComeBackLearnWhatWasDeregistered) {
  configure_ = [](Config& config) { config.verbs_max_connections = 2; };
  make();
  run([](Fabric& fabric) {
    Exposed memory(fabric, "memory", 64, 1);
    auto region = std::make_unique<Exposed>(fabric, "region", 64, 1);
    const auto here = memory.local().slice(0, 64).value();
    if (fabric.rank() == Rank(1)) {
      region->owned().reset();
      sync(fabric, "deregistered");
    } else {
      sync(fabric, "deregistered");
      const auto there = region->at(1).slice(0, 64).value();
      EXPECT_TRUE(progress_until(fabric, [&] {
        return memory.data(1).put(here, there, nullptr).code() == Code::kNotFound;
      }));
    }
    sync(fabric, "done");
  });
}

}  // namespace
}  // namespace dunlin::testing
