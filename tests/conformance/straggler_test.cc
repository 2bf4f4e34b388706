// The straggler-aware ring over every transport: sums against a reference, equal on all ranks, with
// ranks that are late and with one that dies.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>
#include <thread>

#include "collectives/straggler/straggler_ring.h"
#include "collectives/waiting/member_watch.h"
#include "tests/conformance/shared.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::LatenessMode;
using collective::StragglerOptions;
using collective::StragglerRing;
using transport::Fabric;

class StragglerTest : public OverPeers {};

StragglerOptions options_for(const Fabric& fabric, std::size_t count) {
  StragglerOptions options;
  for (int rank = 0; rank < fabric.size(); ++rank) options.membership.members.emplace_back(rank);
  options.count = count;
  options.segment_bytes = 16 * 1024;
  return options;
}

double part(int rank, int step, std::size_t element) {
  return std::sin(static_cast<double>(rank * 131 + step * 17) + static_cast<double>(element));
}

template <typename T>
std::unique_ptr<StragglerRing<T>> make_ring(Fabric& fabric, const StragglerOptions& options) {
  auto ring = StragglerRing<T>::prepare(fabric, options);
  EXPECT_TRUE(ring.is_ok()) << ring.status().to_string();
  const Status status = (*ring)->connect();
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  return std::move(ring).value();
}

// Compares this rank's bytes with those that rank 0 publishes.
void expect_same_everywhere(Fabric& fabric, const std::string& name,
                            std::span<const std::byte> bytes) {
  if (fabric.rank() == Rank(0)) {
    ASSERT_TRUE(fabric.bootstrap().publish(name, Bytes(bytes.begin(), bytes.end())).is_ok());
  }
  sync(fabric, name);
  const auto first = fabric.bootstrap().lookup(name, std::chrono::seconds(30));
  ASSERT_TRUE(first.is_ok()) << first.status().to_string();
  ASSERT_EQ(first->size(), bytes.size());
  EXPECT_TRUE(std::ranges::equal(*first, bytes)) << name << ": ranks differ";
}

template <typename T>
void compare_with_reference(Fabric& fabric, StragglerOptions options,
                            const std::function<void(int step)>& before_step = {}) {
  const std::string name = fmt::format("{} of {} {}", options.count, sizeof(T), options.depth);
  auto ring = make_ring<T>(fabric, options);
  for (int step = 0; step < 30; ++step) {
    for (std::size_t i = 0; i < options.count; ++i)
      ring->data()[i] = static_cast<T>(part(fabric.rank().value(), step, i));
    if (before_step) before_step(step);
    const auto report = ring->all_reduce(std::chrono::seconds(30));
    ASSERT_TRUE(report.is_ok()) << report.status().to_string();
    EXPECT_EQ(report->step, static_cast<std::uint64_t>(step + 1));
    const double ranks = fabric.size();
    const double bound = 4 * ranks * ranks * static_cast<double>(std::numeric_limits<T>::epsilon());
    for (std::size_t i = 0; i < options.count; ++i) {
      double expected = 0;
      for (int rank = 0; rank < fabric.size(); ++rank)
        expected += static_cast<double>(static_cast<T>(part(rank, step, i)));
      if (options.is_average) expected /= ranks;
      ASSERT_NEAR(static_cast<double>(ring->data()[i]), expected, bound) << "element " << i;
    }
  }
  expect_same_everywhere(fabric, name, std::as_bytes(ring->data()));
  sync(fabric, name + " is done");
}

TEST_P(StragglerTest, SumsOfManySizes) {
  for (const std::size_t count : {0, 1, 3, 1003, 50'000}) {
    run(4,
        [&](Fabric& fabric) { compare_with_reference<float>(fabric, options_for(fabric, count)); });
  }
  for (const int size : {1, 2, 3}) {
    run(size, [](Fabric& fabric) {
      StragglerOptions options = options_for(fabric, 5000);
      options.is_average = true;
      options.depth = 1;
      compare_with_reference<double>(fabric, options);
    });
  }
}

// One third is no number of the type: an average that multiplied by it would often be one off.
TEST_P(StragglerTest, AveragesOfSmallIntegersAreRoundedOnce) {
  run(3, [](Fabric& fabric) {
    StragglerOptions options = options_for(fabric, 300);
    options.is_average = true;
    auto ring = make_ring<float>(fabric, options);
    const auto value = [](int rank, std::size_t i) {
      return static_cast<float>(static_cast<int>(i) * (rank + 1) % 101);
    };
    for (std::size_t i = 0; i < options.count; ++i)
      ring->data()[i] = value(fabric.rank().value(), i);
    ASSERT_TRUE(ring->all_reduce(std::chrono::seconds(30)).is_ok());
    for (std::size_t i = 0; i < options.count; ++i)
      ASSERT_EQ(ring->data()[i], (value(0, i) + value(1, i) + value(2, i)) / 3) << i;
    sync(fabric, "done");
  });
}

// The owner of a segment divides, so that a part of the vector would be a sum.
TEST_P(StragglerTest, RanksThatAskForDifferentThingsAreTold) {
  run(2, [](Fabric& fabric) {
    StragglerOptions options = options_for(fabric, 300);
    options.is_average = fabric.rank() == Rank(0);
    auto ring = StragglerRing<float>::prepare(fabric, options).value();
    const Status status = ring->connect();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("'average of float32 x 300"), std::string::npos)
        << status.to_string();
    sync(fabric, "told");
  });
}

// Timeouts that are always too short, and a rank that starts late: all parts take other routes.
TEST_P(StragglerTest, SumsWhileAllRanksSeemLate) {
  run(4, [](Fabric& fabric) {
    StragglerOptions options = options_for(fabric, 20'000);
    options.lateness.mode = LatenessMode::kFixed;
    options.lateness.step = std::chrono::nanoseconds(1);
    compare_with_reference<float>(fabric, options, [&](int step) {
      if (fabric.rank().value() == step % 5)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    });
  });
}

// A rank whose predecessor starts late stops waiting for it after a timeout, though nothing arrives
// that would wake a sleeper, and sends its part alone. The late rank starts after that timeout. The
// wait here is the test's own, which shows that next_event() tells of the timeout, not that it does
// so in time.
TEST_P(StragglerTest, ALateRankIsNotWaitedFor) {
  const SharedCount timeouts;
  run(4, [&timeouts](Fabric& fabric) {
    StragglerOptions options = options_for(fabric, 400);
    options.lateness.mode = LatenessMode::kFixed;
    options.lateness.step = std::chrono::milliseconds(20);
    auto ring = make_ring<double>(fabric, options);
    for (double& value : ring->data()) value = 1;
    sync(fabric, "begin");
    if (fabric.rank() == Rank(1)) {
      EXPECT_TRUE(await_count(timeouts, 1)) << "rank 2 waits for rank 1";
    }
    ASSERT_TRUE(ring->start().is_ok());
    // The wait of all_reduce(), which tells of the first timeout.
    collective::MemberWatch watch(fabric, options.membership.members);
    const Status status = watch.wait(
        [&] {
          Status outcome = ring->test();
          if (fabric.rank() == Rank(2) && ring->report().timeouts > 0) timeouts->store(1);
          return outcome;
        },
        [] { return collective::MemberWatch::Awaited(); },
        std::chrono::seconds(60) * timeout_factor(), [&] { return ring->next_event(); });
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    if (fabric.rank() == Rank(2)) {
      EXPECT_GE(ring->report().timeouts, 1u);
    }
    for (const double value : ring->data()) ASSERT_EQ(value, 4);
    sync(fabric, "end");
  });
}

// The same with the wait of all_reduce() itself. Before rank 1 starts, rank 3 can do a step on the
// chunk whose path starts at rank 1 only with what rank 2 has sent alone; with one slot it does
// that step at once.
TEST_P(StragglerTest, AllReduceDoesNotWaitForALateRank) {
  const SharedCount steps;
  run(4, [&steps](Fabric& fabric) {
    StragglerOptions options = options_for(fabric, 400);
    options.depth = 1;
    options.lateness.mode = LatenessMode::kFixed;
    options.lateness.step = std::chrono::milliseconds(20);
    options.step_time = [&steps](const collective::RingStep& step) {
      if (step.member == 3 && step.chunk == 1) steps->store(1);
      return Duration::zero();
    };
    auto ring = make_ring<double>(fabric, options);
    for (double& value : ring->data()) value = 1;
    sync(fabric, "begin");
    if (fabric.rank() == Rank(1)) {
      EXPECT_TRUE(await_count(steps, 1)) << "rank 2 waits for rank 1";
    }
    const auto report = ring->all_reduce(std::chrono::seconds(60) * timeout_factor());
    ASSERT_TRUE(report.is_ok()) << report.status().to_string();
    if (fabric.rank() == Rank(2)) {
      EXPECT_GE(report->timeouts, 1u);
    }
    for (const double value : ring->data()) ASSERT_EQ(value, 4);
    sync(fabric, "end");
  });
}

// A step that begins while its rank sleeps ends on time, not when the sleeper polls for other
// reasons, which it does every 50 ms: with three steps in each, no all-reduce would then take less
// than 100 ms. A busy host delays most of them as much, so the ranks go on until each has seen some
// that were quicker. The vector tells how many of them have. This finds a sleeper that never knows
// of the end of a step. It doesn't find one that learns of it in a few of 400 rounds only.
TEST_P(StragglerTest, ASleeperWakesUpForWhatBeganInItsSleep) {
  run(4, [](Fabric& fabric) {
    StragglerOptions options = options_for(fabric, 400);
    options.lateness.mode = LatenessMode::kNever;
    options.step_time = [](const collective::RingStep&) { return std::chrono::milliseconds(2); };
    auto ring = make_ring<double>(fabric, options);
    sync(fabric, "begin");
    constexpr int kMostRounds = 400;
    constexpr int kQuickRounds = 3;
    int quick = 0;
    bool is_over = false;
    for (int round = 0; round < kMostRounds && !is_over; ++round) {
      std::ranges::fill(ring->data(), quick >= kQuickRounds ? 1.0 : 0.0);
      const TimePoint began = fabric.clock().now();
      ASSERT_TRUE(ring->all_reduce(std::chrono::seconds(30) * timeout_factor()).is_ok());
      // One of many rounds is quick even on a loaded host, so that this limit needs no factor.
      if (fabric.clock().now() - began < std::chrono::milliseconds(75)) ++quick;
      is_over = ring->data()[0] == fabric.size();
    }
    EXPECT_GE(quick, kQuickRounds);
    sync(fabric, "end");
  });
}

TEST_P(StragglerTest, WhatCannotWorkIsRefused) {
  run(2, [](Fabric& fabric) {
    StragglerOptions options = options_for(fabric, 10);
    options.lateness.alpha = 1;
    EXPECT_EQ(StragglerRing<float>::prepare(fabric, options).status().code(),
              Code::kInvalidArgument);
    options = options_for(fabric, 10);
    options.lateness.mode = LatenessMode::kFixed;
    EXPECT_EQ(StragglerRing<float>::prepare(fabric, options).status().code(),
              Code::kInvalidArgument);
    options = options_for(fabric, 10);
    options.segment_bytes = 2;
    EXPECT_EQ(StragglerRing<float>::prepare(fabric, options).status().code(),
              Code::kInvalidArgument);
    options = options_for(fabric, 10);
    options.membership.members = {Rank(1 - fabric.rank().value())};
    EXPECT_EQ(StragglerRing<float>::prepare(fabric, options).status().code(),
              Code::kInvalidArgument);
    sync(fabric, "refused");
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, StragglerTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

TEST(PeerDeath, EndsAStragglerRing) {
  run_ranks({.kind = PeerKind::kProcesses, .size = 4, .killed = {2}, .configure = {}},
            [](Fabric& fabric) {
              auto ring = make_ring<float>(fabric, options_for(fabric, 10'000));
              for (int step = 0; step < 1000; ++step) {
                // All ranks have heard from one another by then.
                if (step == 20 && fabric.rank() == Rank(2)) kill(getpid(), SIGKILL);
                const auto report = ring->all_reduce(std::chrono::seconds(20));
                if (report.is_ok()) continue;
                EXPECT_EQ(report.status().code(), Code::kPeerDead) << report.status().to_string();
                EXPECT_EQ(report.status().peer(), Rank(2)) << report.status().to_string();
                // What it sent in its last step may be lost.
                EXPECT_GE(step, 19);
                return;
              }
              ADD_FAILURE() << "the death was not noticed";
            });
}

}  // namespace
}  // namespace dunlin::testing
