// Deposits in a window at the moment of reading: each is there as a whole. Over transports that map
// the neighbor's memory, a deposit needs no call of the neighbor, and one that stays unfinished is
// not there at all.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <csignal>
#include <random>
#include <set>
#include <thread>

#include "tests/conformance/one_window.h"
#include "tests/conformance/shared.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::WeightedPeer;
using transport::Fabric;

constexpr auto kTimeout = std::chrono::seconds(30);

class DepositTest : public OverPeers {};

// Rank 0 puts and accumulates numbers while rank 1 reads and takes its buffer at any time. Every
// element that it sees has the value of p, so it is of the same deposits.
TEST_P(DepositTest, WhatIsReadIsOfOneDeposit) {
  run(2, [](Fabric& fabric) {
    constexpr int kDeposits = 500;
    OneWindow<double> one(fabric, "complete", 5000, 0);
    auto& window = *one.window;
    std::mt19937 random(7);
    if (fabric.rank() == Rank(0)) {
      for (int i = 0; i < kDeposits; ++i) {
        const double value = static_cast<double>(random() % 1000);
        std::fill(window.self().begin(), window.self().end(), value);
        window.set_p(value);
        ASSERT_TRUE(random() % 3 == 0 ? window.put(one.to_all(1))
                                      : window.accumulate(one.to_all(0.5)));
        fabric.progress();
      }
      const Status flushed = window.flush(kTimeout * timeout_factor());
      EXPECT_TRUE(flushed.is_ok()) << flushed.to_string();
    } else {
      const WeightedPeer from[] = {{Rank(0), 1}};
      std::vector<double> result(window.self().size());
      std::uint64_t deposits = 0;
      EXPECT_TRUE(progress_until(fabric, [&] {
        const auto buffer = window.buffer(Rank(0)).value();
        for (const double element : buffer.tensor) {
          if (element == buffer.p) continue;
          ADD_FAILURE() << "a buffer with " << element << " beside " << buffer.p;
          return true;
        }
        const auto report = window.update({0, from, random() % 2 == 0, result});
        EXPECT_TRUE(report) << report.status().to_string();
        if (!report) return true;
        EXPECT_GE(report->deposits, buffer.version);
        deposits += report->deposits;
        for (const double element : result) {
          if (element == report->p) continue;
          ADD_FAILURE() << "a result with " << element << " beside " << report->p;
          return true;
        }
        return deposits == kDeposits;
      }));
    }
    sync(fabric, "done");
  });
}

bool maps_memory() {
  return Config::from_environment().value().transports.front() == "shm";
}
constexpr const char* kNotMapped = "this transport does not map the neighbor's memory";

// A rank waits for a deposit, and a deposit notifies a rank that may sleep.
TEST_P(DepositTest, WaitsSeeDeposits) {
  run(2, [](Fabric& fabric) {
    OneWindow<float> one(fabric, "complete", 1000, 1);
    if (fabric.rank() == Rank(0)) {
      const auto& notifies = fabric.counters().peer(Rank(1)).notifies;
      const std::uint64_t before = notifies;
      ASSERT_TRUE(one.window->put(one.to_all(1)));
      if (maps_memory()) {
        EXPECT_EQ(notifies, before + 1);
      }
    } else {
      const Status status = fabric.wait(
          [&] {
            return one.window->buffer(Rank(0)).value().version == 1 ? Status::ok() : Status::busy();
          },
          [] { return std::vector<transport::Awaited>(); }, kTimeout * timeout_factor());
      EXPECT_TRUE(status.is_ok()) << status.to_string();
    }
    sync(fabric, "done");
  });
}

// Rank 1 calls nothing while rank 0 deposits, flushes and is killed. Then the deposits are there.
TEST(PeerDeathBehindADeposit, LeavesItInTheBuffer) {
  if (!maps_memory()) GTEST_SKIP() << kNotMapped;
  const SharedCount deposited;
  run_ranks({.kind = PeerKind::kProcesses, .size = 2, .killed = {0}, .configure = {}},
            [&](Fabric& fabric) {
              OneWindow<double> one(fabric, "complete", 3000, 1);
              auto& window = *one.window;
              sync(fabric, "ready");
              if (fabric.rank() == Rank(0)) {
                for (int i = 0; i < 20; ++i) {
                  ASSERT_TRUE(window.put(one.to_all(1)));
                  ASSERT_TRUE(window.accumulate(one.to_all(1)));
                  ASSERT_TRUE(window.flush().is_ok());
                }
                deposited->store(1);
                kill(getpid(), SIGKILL);
              }
              EXPECT_TRUE(await_count(deposited, 1));
              const auto buffer = window.buffer(Rank(0)).value();
              EXPECT_EQ(buffer.version, 40u);
              for (const double element : buffer.tensor) ASSERT_EQ(element, 2);
              // Its death, once known, changes nothing.
              EXPECT_TRUE(progress_until(
                  fabric, [&] { return window.put(one.to_all(1)).status().is_error(); }));
              ASSERT_TRUE(window.update_then_collect());
              for (const double element : window.self()) ASSERT_EQ(element, 3);
            });
}

// Reads of the second half of a tensor stop the process until it is told how to go on.
class Trap {
 public:
  enum Order : int { kWait, kGoOn, kDie };
  struct State {
    std::atomic<int> is_caught{0};
    std::atomic<int> order{kWait};
  };

  // In the process that is to be stopped. `state` is shared with the others.
  static void set(std::span<double> tensor, const Shared<State>& state) {
    constexpr std::size_t kPage = 4096;
    const auto middle = reinterpret_cast<std::uintptr_t>(tensor.data() + tensor.size() / 2);
    page_ = reinterpret_cast<void*>((middle + kPage - 1) / kPage * kPage);
    state_ = state.operator->();
    struct sigaction action {};
    action.sa_handler = [](int) { caught(); };
    ASSERT_EQ(sigaction(SIGSEGV, &action, nullptr), 0);
    ASSERT_EQ(mprotect(page_, kPage, PROT_NONE), 0);
  }

 private:
  static void caught() {
    state_->is_caught.store(1);
    while (state_->order.load() == kWait) std::this_thread::yield();
    if (state_->order.load() == kDie) kill(getpid(), SIGKILL);
    mprotect(page_, 1, PROT_READ | PROT_WRITE);
  }

  static inline void* page_ = nullptr;
  static inline State* state_ = nullptr;
};

// Rank 0 is stopped in the middle of an accumulate. Rank 1 reads and takes what was there before.
// Then rank 0 goes on or dies.
void stop_within_a_deposit(Trap::Order order) {
  if (!maps_memory()) GTEST_SKIP() << kNotMapped;
  const Shared<Trap::State> trap;
  std::set<int> killed;
  if (order == Trap::kDie) killed.insert(0);
  run_ranks({.kind = PeerKind::kProcesses, .size = 2, .killed = killed, .configure = {}},
            [&](Fabric& fabric) {
              OneWindow<double> one(fabric, "complete", 16'384, 1);
              auto& window = *one.window;
              const auto expect = [&](double value, double p, std::uint64_t version) {
                const auto buffer = window.buffer(Rank(0)).value();
                for (const double element : buffer.tensor) ASSERT_EQ(element, value);
                EXPECT_EQ(buffer.p, p);
                EXPECT_EQ(buffer.version, version);
              };
              if (fabric.rank() == Rank(0)) {
                ASSERT_TRUE(window.put(one.to_all(1)));
                std::fill(window.self().begin(), window.self().end(), 5);
                window.set_p(5);
                Trap::set(window.self(), trap);
                ASSERT_TRUE(window.accumulate(one.to_all(1)));
                sync(fabric, "went on");
                sync(fabric, "done");
                return;
              }
              ASSERT_TRUE(progress_until(fabric, [&] { return trap->is_caught.load() != 0; }));
              expect(1, 1, 1);
              ASSERT_TRUE(window.update_then_collect());
              EXPECT_EQ(window.self().front(), 2);
              EXPECT_EQ(window.self().back(), 2);
              expect(0, 0, 0);
              trap->order.store(order);
              if (order == Trap::kGoOn) {
                // It adds to what is there by now, which is nothing.
                sync(fabric, "went on");
                expect(5, 5, 1);
                sync(fabric, "done");
                return;
              }
              EXPECT_TRUE(progress_until(
                  fabric, [&] { return window.put(one.to_all(1)).status().is_error(); }));
              expect(0, 0, 0);
            });
}

TEST(StoppedWithinADeposit, TheReaderGoesOn) {
  stop_within_a_deposit(Trap::kGoOn);
}

TEST(PeerDeathWithinADeposit, LeavesNothingOfIt) {
  stop_within_a_deposit(Trap::kDie);
}

INSTANTIATE_TEST_SUITE_P(Peers, DepositTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

}  // namespace
}  // namespace dunlin::testing
