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

#include "collectives/straggler_ring.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::LatenessMode;
using collective::StragglerOptions;
using collective::StragglerRing;
using transport::Fabric;

class StragglerTest : public ::testing::TestWithParam<PeerKind> {
 protected:
  void run(int size, const RankBody& body) {
    run_ranks({.kind = GetParam(), .size = size, .killed = {}, .configure = {}}, body);
  }
};

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

// Publishes what it has, and compares it with rank 0's.
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

// Time-outs that are always too short, and a rank that starts late: all goes by other routes.
TEST_P(StragglerTest, SumsWhileEverybodySeemsLate) {
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

// The wait for a rank that starts late ends with a time-out, though nothing comes that would wake
// a sleeper up, and the part goes on alone.
TEST_P(StragglerTest, ALateRankIsNotWaitedFor) {
  run(4, [](Fabric& fabric) {
    StragglerOptions options = options_for(fabric, 400);
    options.lateness.mode = LatenessMode::kFixed;
    options.lateness.step = std::chrono::milliseconds(20);
    auto ring = make_ring<double>(fabric, options);
    for (double& value : ring->data()) value = 1;
    sync(fabric, "begin");
    if (fabric.rank() == Rank(1)) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const auto report = ring->all_reduce(std::chrono::seconds(30));
    ASSERT_TRUE(report.is_ok()) << report.status().to_string();
    if (fabric.rank() == Rank(2)) {
      EXPECT_GE(report->timeouts, 1u);
    }
    for (const double value : ring->data()) ASSERT_EQ(value, 4);
    sync(fabric, "end");
  });
}

// A step that begins while its rank sleeps ends on time: not when the sleeper looks up for other
// reasons, 50 ms later, which 3 x 40 times would be 6 s.
TEST_P(StragglerTest, ASleeperWakesUpForWhatBeganInItsSleep) {
  run(4, [](Fabric& fabric) {
    StragglerOptions options = options_for(fabric, 400);
    options.lateness.mode = LatenessMode::kNever;
    options.step_time = [](const collective::RingStep&) { return std::chrono::milliseconds(2); };
    auto ring = make_ring<double>(fabric, options);
    sync(fabric, "begin");
    const TimePoint began = fabric.clock().now();
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(ring->all_reduce(std::chrono::seconds(30)).is_ok());
    EXPECT_LT(fabric.clock().now() - began, patience() * std::chrono::seconds(3));
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
                // Everybody has spoken to everybody by then.
                if (step == 20 && fabric.rank() == Rank(2)) kill(getpid(), SIGKILL);
                const auto report = ring->all_reduce(std::chrono::seconds(20));
                if (report.is_ok()) continue;
                EXPECT_EQ(report.status().code(), Code::kPeerDead) << report.status().to_string();
                EXPECT_EQ(report.status().peer(), Rank(2)) << report.status().to_string();
                // What it sent in its last step may have died with it.
                EXPECT_GE(step, 19);
                return;
              }
              ADD_FAILURE() << "the death was not noticed";
            });
}

}  // namespace
}  // namespace dunlin::testing
