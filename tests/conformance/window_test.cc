// Neighbor windows over every transport: what deposits and updates do, a rank that calls nothing,
// push-sum, and the death of a neighbor.
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <random>
#include <thread>

#include "tests/conformance/one_window.h"
#include "tests/conformance/shared.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::WeightedPeer;
using transport::Fabric;

constexpr auto kTimeout = std::chrono::seconds(30);

class WindowTest : public OverPeers {};

template <typename T>
void deposit_and_update(Fabric& fabric, std::size_t count) {
  OneWindow<T> one(fabric, "exponential", count, static_cast<T>(fabric.rank().value() + 1));
  auto& window = *one.window;
  const auto value_of = [](Rank rank) { return static_cast<T>(rank.value() + 1); };
  const auto expect = [&](const char* moment, double factor, std::uint64_t version) {
    for (const Rank peer : one.in) {
      const auto buffer = window.buffer(peer).value();
      EXPECT_EQ(buffer.version, version);
      EXPECT_EQ(buffer.p, factor);
      for (const T element : buffer.tensor)
        ASSERT_EQ(element, static_cast<T>(factor) * value_of(peer)) << count;
    }
    sync(fabric, moment);  // no rank goes on before all have checked
  };
  // 0.5 + 0.25, then halves of the rest: sums of powers of two are exact.
  ASSERT_TRUE(window.accumulate(one.to_all(0.5)));
  const auto last = window.accumulate(one.to_all(0.25), 0.5);
  ASSERT_TRUE(last);
  const Status waited = window.wait(*last, kTimeout);
  ASSERT_TRUE(waited.is_ok()) << waited.to_string();
  settle(fabric, window, "accumulated");
  expect("looked at 0.75", 0.75, 2);
  ASSERT_TRUE(window.put(one.to_all(1)));
  settle(fabric, window, "put");
  expect("looked at 0.5", 0.5, 3);
  ASSERT_TRUE(window.accumulate(one.to_all(1)));
  const Status flushed = window.flush(kTimeout);
  ASSERT_TRUE(flushed.is_ok()) << flushed.to_string();
  settle(fabric, window, "added");
  expect("looked at 1", 1, 4);
  const auto report = window.update_then_collect();
  ASSERT_TRUE(report) << report.status().to_string();
  EXPECT_EQ(report->deposits, 4 * one.in.size());
  double sum = 0.5 * value_of(fabric.rank());
  for (const Rank peer : one.in) sum += value_of(peer);
  for (const T element : window.self()) ASSERT_EQ(element, static_cast<T>(sum));
  EXPECT_EQ(window.p(), 0.5 + static_cast<double>(one.in.size()));
  expect("looked at 0", 0, 0);
  sync(fabric, "done");
}

TEST_P(WindowTest, DepositsArriveAndUpdatesTakeThem) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{1003}, std::size_t{200'000}}) {
    run(3, [count](Fabric& fabric) { deposit_and_update<float>(fabric, count); });
  }
  run(4, [](Fabric& fabric) { deposit_and_update<double>(fabric, 777); });
  run(1, [](Fabric& fabric) { deposit_and_update<double>(fabric, 5); });
}

// One rank calls nothing until the others are done with all their operations; what they have
// deposited with it is all there afterwards.
TEST_P(WindowTest, ARankThatCallsNothingHoldsNoOtherUp) {
  const SharedCount done;
  run(4, [&done](Fabric& fabric) {
    constexpr int kRounds = 100;
    OneWindow<double> one(fabric, "complete", 2000, 1);
    auto& window = *one.window;
    const bool is_idle = fabric.rank() == Rank(3);
    sync(fabric, "ready");
    if (is_idle) {
      EXPECT_TRUE(await_count(done, fabric.size() - 1)) << "another rank waits for the idle one";
    } else {
      for (int round = 0; round < kRounds; ++round) {
        ASSERT_TRUE(window.put(one.to_all(1)));
        ASSERT_TRUE(window.accumulate(one.to_all(1)));
        ASSERT_TRUE(window.update({1, {}}));
        fabric.progress();
      }
      done->fetch_add(1);
    }
    settle(fabric, window, "settled");
    for (const Rank peer : one.in) {
      const auto buffer = window.buffer(peer).value();
      const bool has_deposited = peer != Rank(3);
      EXPECT_EQ(buffer.version, has_deposited ? 2 * kRounds : 0);
      for (const double element : buffer.tensor) ASSERT_EQ(element, has_deposited ? 2 : 0);
    }
    sync(fabric, "done");
  });
}

// Rank 1 waits in a barrier, and calls nothing of its window.
TEST_P(WindowTest, DepositsAreTakenOverInEveryWait) {
  run(2, [](Fabric& fabric) {
    OneWindow<float> one(fabric, "complete", 1000, 1);
    if (fabric.rank() == Rank(0)) {
      // More deposits than an edge has slots.
      for (int i = 0; i < 10; ++i) {
        ASSERT_TRUE(one.window->accumulate(one.to_all(1)));
        const Status flushed = one.window->flush(kTimeout);
        ASSERT_TRUE(flushed.is_ok()) << flushed.to_string();
      }
    }
    const Status met = fabric.bootstrap().barrier("deposited", 2 * kTimeout);
    ASSERT_TRUE(met.is_ok()) << met.to_string();
    if (fabric.rank() == Rank(1)) {
      EXPECT_EQ(one.window->buffer(Rank(0)).value().version, 10u);
    }
    sync(fabric, "counted");
  });
}

// Push-sum on a directed graph by ranks that sleep at random: the sums stay the same, and every
// rank gets the average.
TEST_P(WindowTest, PushSumFindsTheAverage) {
  run(4, [](Fabric& fabric) {
    constexpr std::size_t kCount = 500;
    constexpr int kPhases = 24;
    constexpr int kSteps = 15;
    const auto initial = [](int rank, std::size_t element) {
      return std::sin(static_cast<double>(rank * 7) + static_cast<double>(element)) + 2;
    };
    OneWindow<double> one(fabric, "root-expander", kCount, 0);
    auto& window = *one.window;
    const int self = fabric.rank().value();
    for (std::size_t i = 0; i < kCount; ++i) window.self()[i] = initial(self, i);
    std::mt19937 random(static_cast<std::uint32_t>(self));
    const double share = 1.0 / static_cast<double>(one.out.size() + 1);
    for (int phase = 0; phase < kPhases; ++phase) {
      for (int step = 0; step < kSteps; ++step) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        ASSERT_TRUE(window.accumulate(one.to_all(share), share));
        ASSERT_TRUE(window.update_then_collect());
        fabric.progress();
      }
      settle(fabric, window, "phase " + std::to_string(phase));
    }
    ASSERT_TRUE(window.update_then_collect());
    ByteWriter writer;
    writer.number(std::bit_cast<std::uint64_t>(window.p()));
    for (const double element : window.self()) writer.number(std::bit_cast<std::uint64_t>(element));
    const auto key = [](int rank) { return "mass of " + std::to_string(rank); };
    ASSERT_TRUE(fabric.bootstrap().publish(key(self), writer.take()).is_ok());
    std::vector<double> sums(kCount + 1);
    for (int rank = 0; rank < fabric.size(); ++rank) {
      const auto mass = fabric.bootstrap().lookup(key(rank), kTimeout * timeout_factor());
      ASSERT_TRUE(mass.is_ok());
      ByteReader reader(*mass);
      for (double& sum : sums) sum += std::bit_cast<double>(reader.number<std::uint64_t>());
    }
    EXPECT_NEAR(sums[0] / fabric.size(), 1, 1e-12);
    for (std::size_t i = 0; i < kCount; ++i) {
      double expected = 0;
      for (int rank = 0; rank < fabric.size(); ++rank) expected += initial(rank, i);
      ASSERT_NEAR(sums[i + 1] / expected, 1, 1e-12) << "element " << i;
      ASSERT_NEAR(window.self()[i] / window.p(), expected / fabric.size(), 1e-5) << "element " << i;
    }
    sync(fabric, "done");
  });
}

// Gets and deposits change the same buffer.
TEST_P(WindowTest, DepositsAddToWhatAGetHasRead) {
  run(2, [](Fabric& fabric) {
    OneWindow<double> one(fabric, "complete", 1000, 3, true);
    auto& window = *one.window;
    const Rank peer(1 - fabric.rank().value());
    const auto expect = [&](double value, std::uint64_t version, const char* moment) {
      settle(fabric, window, std::string("deposited, ") + moment);
      const auto buffer = window.buffer(peer).value();
      for (const double element : buffer.tensor) ASSERT_EQ(element, value) << moment;
      EXPECT_EQ(buffer.version, version) << moment;
      sync(fabric, moment);
    };
    const WeightedPeer from[] = {{peer, 2}};
    ASSERT_TRUE(window.accumulate(one.to_all(1)));
    expect(3, 1, "an accumulate");
    const Status got = window.get(from, kTimeout * timeout_factor());
    ASSERT_TRUE(got.is_ok()) << got.to_string();
    expect(6, 2, "a get");
    ASSERT_TRUE(window.accumulate(one.to_all(1)));
    ASSERT_TRUE(window.accumulate(one.to_all(1)));
    expect(12, 4, "two accumulates");
    ASSERT_TRUE(window.accumulate(one.to_all(1)));
    expect(15, 5, "one more");
    ASSERT_TRUE(window.put(one.to_all(1)));
    expect(3, 6, "a put");
  });
}

// Rank 0 publishes, and calls nothing else. The others read whole versions, one after the other.
TEST_P(WindowTest, GetsReadWhatOthersPublish) {
  run(3, [](Fabric& fabric) {
    constexpr std::size_t kCount = 20'000;
    constexpr int kVersions = 300;
    OneWindow<double> one(fabric, "complete", kCount, 0, true);
    auto& window = *one.window;
    const WeightedPeer owner[] = {{Rank(0), 0.5}};
    sync(fabric, "ready");
    if (fabric.rank() == Rank(0)) {
      for (int version = 1; version <= kVersions; ++version) {
        std::fill(window.self().begin(), window.self().end(), version);
        window.set_p(version + 1);
        EXPECT_TRUE(window.publish().is_ok());
      }
    } else {
      for (double seen = 0; seen < kVersions;) {
        const Status status = window.get(owner, kTimeout * timeout_factor());
        ASSERT_TRUE(status.is_ok()) << status.to_string();
        const auto buffer = window.buffer(Rank(0)).value();
        ASSERT_GE(2 * buffer.p - 1, seen);
        seen = 2 * buffer.p - 1;
        for (const double element : buffer.tensor) ASSERT_EQ(2 * element, seen);
      }
    }
    sync(fabric, "done");
  });
}

// Named so that runs over transports that don't survive a killed peer leave it out.
TEST(PeerDeathBesideAWindow, StopsNoOtherRank) {
  run_ranks({.kind = PeerKind::kProcesses, .size = 3, .killed = {2}, .configure = {}},
            [](Fabric& fabric) {
              OneWindow<double> one(fabric, "complete", 1000, 1);
              auto& window = *one.window;
              const Rank victim(2);
              ASSERT_TRUE(window.accumulate(one.to_all(0.25), 0.5));
              settle(fabric, window, "connected");
              if (fabric.rank() == victim) kill(getpid(), SIGKILL);
              // A deposit is refused as soon as the death is known, and not before.
              Status refused;
              ASSERT_TRUE(progress_until(fabric, [&] {
                refused = window.accumulate(one.to_all(0.25), 0.5).status();
                EXPECT_TRUE(window.update_then_collect());
                return refused.is_error();
              }));
              EXPECT_EQ(refused.code(), Code::kPeerDead) << refused.to_string();
              EXPECT_EQ(refused.peer(), victim) << refused.to_string();
              Status flushed = window.flush(kTimeout);
              if (flushed.is_error()) {  // deposits that the victim didn't take over
                EXPECT_EQ(flushed.code(), Code::kPeerDead) << flushed.to_string();
                EXPECT_EQ(flushed.peer(), victim) << flushed.to_string();
              }
              const Rank other(1 - fabric.rank().value());
              const WeightedPeer survivor[] = {{other, 0.5}};
              const auto last = window.accumulate(survivor, 0.5);
              ASSERT_TRUE(last) << last.status().to_string();
              const Status waited = window.wait(*last, kTimeout);
              EXPECT_TRUE(waited.is_ok()) << waited.to_string();
              // The other rank may still be waiting for this one.
              ASSERT_TRUE(fabric.bootstrap()
                              .publish("last/" + std::to_string(fabric.rank().value()), {})
                              .is_ok());
              EXPECT_TRUE(progress_until(fabric, [&] {
                EXPECT_TRUE(window.update_then_collect());
                return fabric.bootstrap()
                    .lookup("last/" + std::to_string(other.value()), std::chrono::milliseconds(1))
                    .is_ok();
              }));
            });
}

// Buffers of equal size would hold numbers that the other end misreads.
TEST_P(WindowTest, RanksWithTensorsOfOtherTypesAreTold) {
  run(2, [](Fabric& fabric) {
    const auto graph = collective::make_graph("complete", 2).value();
    collective::WindowOptions options;
    options.neighborhood = collective::neighborhood_of(graph, collective::Weighting::kUniform,
                                                       {Rank(0), Rank(1)}, fabric.rank())
                               .value();
    const auto connect = [&]<typename T>(std::size_t count) {
      options.count = count;
      return collective::NeighborWindow<T>::prepare(fabric, options).value()->connect();
    };
    const Status status =
        fabric.rank() == Rank(0) ? connect.operator()<float>(200) : connect.operator()<double>(100);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    sync(fabric, "told");
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, WindowTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

}  // namespace
}  // namespace dunlin::testing
