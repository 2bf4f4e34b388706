// Remote reads and atomics (transports/remote_access.h) of the transports that have them.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "runtime/config.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using transport::Completion;
using transport::Fabric;
using transport::Lane;
using transport::LocalSlice;
using transport::RemoteSlice;
using transport::Visibility;

bool has_atomics() {
  const std::string name = Config::from_environment().value().transports.front();
  return name != "ucx" && name != "tcp";
}

class AccessTest : public ::testing::TestWithParam<PeerKind> {
 protected:
  void run(const RankBody& body, int size = 2) {
    run_ranks({.kind = GetParam(), .size = size, .killed = {}, .configure = {}}, body);
  }
};

RemoteSlice word_of(Exposed& memory, int rank, std::size_t index) {
  return memory.at(rank).slice(index * sizeof(std::uint64_t), sizeof(std::uint64_t)).value();
}

Result<std::uint64_t> fetch_add(Fabric& fabric, Lane& lane, RemoteSlice word,
                                std::uint64_t operand) {
  std::uint64_t before = ~std::uint64_t{0};
  DUNLIN_TRY(complete(fabric, [&](Completion* completion) {
    return lane.atomics()->fetch_add(word, operand, &before, completion);
  }));
  return before;
}

Result<std::uint64_t> compare_swap(Fabric& fabric, Lane& lane, RemoteSlice word,
                                   std::uint64_t expected, std::uint64_t desired) {
  std::uint64_t before = ~std::uint64_t{0};
  DUNLIN_TRY(complete(fabric, [&](Completion* completion) {
    return lane.atomics()->compare_swap(word, expected, desired, &before, completion);
  }));
  return before;
}

TEST_P(AccessTest, AGetSeesEarlierPutsAndNeedsNoProgressOfThePeer) {
  run([](Fabric& fabric) {
    constexpr std::size_t kLargest = 3 << 20;
    Exposed memory(fabric, "get", 2 * kLargest, 1);
    ASSERT_NE(memory.data(1 - fabric.rank().value()).reads(), nullptr);
    sync(fabric, "connected");
    if (fabric.rank() == Rank(1)) {
      // Waits until rank 0 is done.
      ASSERT_TRUE(
          fabric.bootstrap().lookup("read", 30 * timeout_factor() * std::chrono::seconds(1)));
      return;
    }
    std::uint64_t seed = 0;
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{8},
                                   std::size_t{4096}, std::size_t{65537}, kLargest}) {
      ++seed;
      const LocalSlice out = memory.local().slice(0, size).value();
      const LocalSlice in = memory.local().slice(kLargest, size).value();
      const RemoteSlice there = memory.at(1).slice(kLargest, size).value();
      fill({out.data(), size}, seed);
      ASSERT_TRUE(post(fabric, [&] { return memory.data(1).put(out, there, nullptr); }).is_ok());
      const Status status = complete(fabric, [&](Completion* completion) {
        return memory.data(1).reads()->get(there, in, completion);
      });
      ASSERT_TRUE(status.is_ok()) << status.to_string();
      EXPECT_TRUE(is_filled({in.data(), size}, seed)) << size;
    }
    ASSERT_TRUE(fabric.bootstrap().publish("read", {}).is_ok());
  });
}

TEST_P(AccessTest, ManyGetsWaitForRoomAndAllArrive) {
  run([](Fabric& fabric) {
    constexpr std::size_t kCount = 600;
    constexpr std::size_t kSize = 200;
    Exposed memory(fabric, "many", 2 * kCount * kSize, 1);
    const int peer = 1 - fabric.rank().value();
    fill(memory.local().memory()->bytes().first(kCount * kSize), 5);
    sync(fabric, "filled");
    std::vector<Completion> completions(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      const Status status = post(fabric, [&] {
        return memory.data(peer).reads()->get(
            memory.at(peer).slice(i * kSize, kSize).value(),
            memory.local().slice((kCount + i) * kSize, kSize).value(), &completions[i]);
      });
      ASSERT_TRUE(status.is_ok()) << status.to_string();
    }
    const auto all_done = [&] {
      return std::all_of(completions.begin(), completions.end(),
                         [](const Completion& one) { return one.is_done(); });
    };
    ASSERT_TRUE(progress_until(fabric, all_done));
    for (const Completion& one : completions) EXPECT_TRUE(one.status().is_ok());
    EXPECT_TRUE(
        is_filled(memory.local().memory()->bytes().subspan(kCount * kSize, kCount * kSize), 5));
    sync(fabric, "read");
  });
}

TEST_P(AccessTest, WhatDoesNotFitIsAnError) {
  run([](Fabric& fabric) {
    Exposed memory(fabric, "bounds", 4096, 1);
    const int peer = 1 - fabric.rank().value();
    Lane& lane = memory.data(peer);
    const auto atomic = [&](RemoteSlice word) {
      return lane.atomics()->fetch_add(word, 1, nullptr, nullptr).code();
    };
    EXPECT_EQ(
        lane.reads()
            ->get(memory.at(peer).slice(0, 9).value(), memory.local().slice(0, 8).value(), nullptr)
            .code(),
        Code::kInvalidArgument);
    const auto get = [&](RemoteSlice from) {
      const LocalSlice to = memory.local().slice(0, from.size()).value();
      return lane.reads()->get(from, to, nullptr).code();
    };
    // Memory of another peer (here: this rank's own) through this link.
    const RemoteSlice elsewhere = memory.at(fabric.rank().value()).slice(0, 8).value();
    EXPECT_EQ(get(elsewhere), Code::kInvalidArgument);
    if (has_atomics()) {
      EXPECT_EQ(atomic(memory.at(peer).slice(0, 4).value()), Code::kInvalidArgument);
      EXPECT_EQ(atomic(memory.at(peer).slice(4, 8).value()), Code::kInvalidArgument);
      EXPECT_EQ(atomic(RemoteSlice()), Code::kInvalidArgument);
      EXPECT_EQ(atomic(elsewhere), Code::kInvalidArgument);
    }
    sync(fabric, "looked");
    lane.close();
    EXPECT_EQ(get(memory.at(peer).slice(0, 8).value()), Code::kClosed);
    if (has_atomics()) {
      EXPECT_EQ(atomic(memory.at(peer).slice(0, 8).value()), Code::kClosed);
    }
  });
}

TEST_P(AccessTest, UnregisteredMemoryIsAnError) {
  run([](Fabric& fabric) {
    Exposed memory(fabric, "gone", 4096, 1);
    const int peer = 1 - fabric.rank().value();
    sync(fabric, "connected");
    if (fabric.rank() == Rank(1)) {
      memory.data(0);  // a peer that this rank writes to is told
      memory.owned().reset();
    }
    sync(fabric, "unregistered");
    if (fabric.rank() == Rank(0)) {
      // The peer may be told some time later.
      Status status;
      ASSERT_TRUE(progress_until(fabric, [&] {
        status = complete(fabric, [&](Completion* completion) {
          return memory.data(peer).reads()->get(memory.at(peer).slice(0, 64).value(),
                                                memory.local().slice(0, 64).value(), completion);
        });
        return status.is_error();
      }));
      EXPECT_EQ(status.code(), Code::kNotFound) << status.to_string();
      if (has_atomics()) {
        EXPECT_EQ(fetch_add(fabric, memory.data(peer), word_of(memory, peer, 0), 1).status().code(),
                  Code::kNotFound);
      }
    }
    sync(fabric, "seen");
  });
}

// Every rank, the owner rank too, adds to one word, and no rank sees a value twice.
TEST_P(AccessTest, AdditionsOfAllRanksAreCountedOnce) {
  if (!has_atomics()) GTEST_SKIP() << "this transport has no remote atomics";
  constexpr int kRanks = 3;
  run(
      [](Fabric& fabric) {
        constexpr std::uint64_t kRounds = 200;
        Exposed memory(fabric, "sum", 64, 1);
        ASSERT_NE(memory.data(0).atomics(), nullptr);
        std::uint64_t last = 0;
        for (std::uint64_t round = 0; round < kRounds; ++round) {
          const auto before = fetch_add(fabric, memory.data(0), word_of(memory, 0, 1), 1);
          ASSERT_TRUE(before) << before.status().to_string();
          ASSERT_TRUE(round == 0 || *before > last) << *before << " after " << last;
          last = *before;
        }
        sync(fabric, "added");
        const auto sum = fetch_add(fabric, memory.data(0), word_of(memory, 0, 1), 0);
        ASSERT_TRUE(sum);
        EXPECT_EQ(*sum, kRounds * kRanks);
        sync(fabric, "looked");
        // The neighboring words are as they were.
        EXPECT_EQ(*compare_swap(fabric, memory.data(0), word_of(memory, 0, 0), 0, 0), 0u);
        EXPECT_EQ(*compare_swap(fabric, memory.data(0), word_of(memory, 0, 2), 0, 0), 0u);
        sync(fabric, "done");
      },
      kRanks);
}

// A lock by compare-and-swap over a number that is read, changed and written back.
TEST_P(AccessTest, ALockOfCompareAndSwapExcludes) {
  if (!has_atomics()) GTEST_SKIP() << "this transport has no remote atomics";
  constexpr int kRanks = 3;
  run(
      [](Fabric& fabric) {
        constexpr std::uint64_t kRounds = 20;
        Exposed memory(fabric, "lock", 64, 1);
        Lane& lane = memory.data(0);
        const std::uint64_t mine = static_cast<std::uint64_t>(fabric.rank().value()) + 1;
        const RemoteSlice lock = word_of(memory, 0, 0);
        const RemoteSlice number = word_of(memory, 0, 1);
        const LocalSlice local = memory.local().slice(32, 8).value();
        auto* const value = reinterpret_cast<std::uint64_t*>(local.data());
        for (std::uint64_t round = 0; round < kRounds; ++round) {
          for (;;) {
            const auto before = compare_swap(fabric, lane, lock, 0, mine);
            ASSERT_TRUE(before) << before.status().to_string();
            if (*before == 0) break;
          }
          ASSERT_TRUE(complete(fabric, [&](Completion* completion) {
                        return lane.reads()->get(number, local, completion);
                      }).is_ok());
          ++*value;
          ASSERT_TRUE(post(fabric, [&] { return lane.put(local, number, nullptr); }).is_ok());
          ASSERT_TRUE(complete(fabric, [&](Completion* completion) {
                        return lane.flush(Visibility::kRemote, completion);
                      }).is_ok());
          const auto before = compare_swap(fabric, lane, lock, mine, 0);
          ASSERT_TRUE(before) << before.status().to_string();
          ASSERT_EQ(*before, mine);
        }
        sync(fabric, "done");
        ASSERT_TRUE(complete(fabric, [&](Completion* completion) {
                      return lane.reads()->get(number, local, completion);
                    }).is_ok());
        EXPECT_EQ(*value, kRounds * kRanks);
        sync(fabric, "looked");
      },
      kRanks);
}

INSTANTIATE_TEST_SUITE_P(Peers, AccessTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

}  // namespace
}  // namespace dunlin::testing
