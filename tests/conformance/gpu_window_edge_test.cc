// Windows on GPUs where something is out of the ordinary: ranks of several hosts, neighbors that
// are early, operations whose GPU stands still, peers that are named twice, and bad arguments.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/gpu_window.h"
#include "tests/conformance/shared.h"

namespace dunlin::testing {
namespace {

using collective::NeighborWindow;
using collective::WeightedPeer;
using collective::WindowOptions;

// Ranks that are processes have a stand-in each.
FakeCuda* const kFake = use_gpu_library();

class GpuWindowEdge : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kFake == nullptr) GTEST_SKIP() << "sets the stand-in up";
  }
};

// Ranks 0 and 1 share a host, and rank 2 is on another one. Deposits go both ways of each pair.
TEST_F(GpuWindowEdge, RanksOfSeveralHosts) {
  kFake->reset();
  InProcessJob job(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto bootstrap = job.bootstrap(Rank(rank));
      Config config = Config::from_environment().value();
      config.transports = {"shm", "tcp"};
      config.host_id = rank < 2 ? "a" : "b";
      const SteadyClock clock;
      auto fabric = Fabric::create(*bootstrap, config, clock);
      ASSERT_TRUE(fabric.is_ok()) << fabric.status().to_string();
      WindowOptions options = window_options(**fabric, "complete", 100, 0);
      options.is_zeroed = true;
      const std::vector<float> initial(100, static_cast<float>(1 << rank));
      const auto window = make_window<float>(**fabric, options, std::span<const float>(initial));
      std::vector<WeightedPeer> to;
      for (const Rank peer : options.neighborhood.out) to.push_back({peer, 1});
      const std::uint64_t fetched = kFake->copies;
      ASSERT_TRUE(window->put(to));
      EXPECT_GT(kFake->copies, fetched) << "no message, though each rank has a peer elsewhere";
      settle(**fabric, *window, "deposited");
      ASSERT_TRUE(window->update_then_collect());
      EXPECT_EQ(read(std::span<const float>(window->self()), true), std::vector<float>(100, 7));
      sync(**fabric, "done");
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect_nothing_left(*kFake);
}

// A neighbor may be connected before this rank has published for the first time.
TEST_F(GpuWindowEdge, AGetWaitsForTheFirstPublish) {
  run_gpu_ranks(kFake, PeerKind::kProcesses, 2, [](Fabric& fabric) {
    const bool is_slow = fabric.rank() == Rank(1);
    if (is_slow) kFake->delay_us = 200'000;
    const std::vector<float> ones(100, 1);
    const auto window = make_window<float>(fabric, window_options(fabric, "complete", 100, 0),
                                           std::span<const float>(ones));
    kFake->delay_us = 0;
    if (!is_slow) {
      const WeightedPeer from{Rank(1), 1};
      const Status status = window->get(std::span(&from, 1), std::chrono::seconds(30));
      EXPECT_TRUE(status.is_ok()) << status.to_string();
      const auto buffer = window->buffer(Rank(1)).value();
      EXPECT_EQ(buffer.p, 1);
      EXPECT_EQ(read(buffer.tensor, true), ones);
    }
    sync(fabric, "done");
  });
}

// What was published before a failure stays readable, however often the rank publishes after it.
TEST_F(GpuWindowEdge, AFailedPublishLeavesTheLastOne) {
  run_gpu_ranks(kFake, PeerKind::kProcesses, 2, [](Fabric& fabric) {
    const std::vector<float> ones(100, 1);
    const auto window = make_window<float>(fabric, window_options(fabric, "complete", 100, 0),
                                           std::span<const float>(ones));
    sync(fabric, "ready");
    if (fabric.rank() == Rank(1)) {
      kFake->failing_code = 719;
      kFake->failing_call = 1;
      for (int i = 0; i < 3; ++i) EXPECT_FALSE(window->publish().is_ok());
      kFake->failing_call = 0;
    }
    sync(fabric, "failed");
    if (fabric.rank() == Rank(0)) {
      const WeightedPeer from{Rank(1), 1};
      const Status status = window->get(std::span(&from, 1), std::chrono::seconds(30));
      EXPECT_TRUE(status.is_ok()) << status.to_string();
    }
    sync(fabric, "done");
  });
}

// The GPU stands still beyond the deadline. The window that is destroyed meanwhile waits for its
// work.
void expect_work_to_keep_its_memory(const std::string& transport) {
  kFake->reset();
  run_ranks({.kind = PeerKind::kProcesses,
             .size = 2,
             .killed = {},
             .configure =
                 [&](Config& config) {
                   config.transports = {transport};
                   config.deadline = std::chrono::seconds(2) * timeout_factor();
                 }},
            [](Fabric& fabric) {
              sync(fabric, "both are there");  // so that opening it doesn't take the deadline
              WindowOptions options = window_options(fabric, "complete", 1 << 18, 0);
              options.is_readable = false;
              auto window = make_window<float>(fabric, options);
              sync(fabric, "ready");
              if (fabric.rank() == Rank(1)) {
                kFake->hold();
                const WeightedPeer to{Rank(0), 1};
                for (int i = 0; i < 2; ++i) {
                  const Status status = window->accumulate(std::span(&to, 1)).status();
                  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
                }
                std::thread releaser([calls = kFake->calls.load()] {
                  // The destructor asks the driver whether the work has ended.
                  while (kFake->calls == calls) std::this_thread::yield();
                  kFake->release();
                });
                window.reset();
                releaser.join();
              }
              sync(fabric, "done");
            });
}

TEST_F(GpuWindowEdge, WorkThatHasNotEndedKeepsItsMemoryOverShm) {
  expect_work_to_keep_its_memory("shm");
}

TEST_F(GpuWindowEdge, WorkThatHasNotEndedKeepsItsMemoryOverTcp) {
  expect_work_to_keep_its_memory("tcp");
}

void name_a_peer_three_times(Fabric& fabric) {
  for (const bool is_put : {true, false}) {
    WindowOptions options = window_options(fabric, "complete", 1000, 0);
    options.name = is_put ? "put" : "accumulate";
    options.is_zeroed = true;
    const std::vector<float> ones(1000, 1);
    const auto window = make_window<float>(fabric, options, std::span<const float>(ones));
    sync(fabric, options.name + " ready");
    const Rank peer = options.neighborhood.out.front();
    const std::vector<WeightedPeer> to = {{peer, 1}, {peer, 2}, {peer, 4}};
    ASSERT_TRUE(is_put ? window->put(to, 0.5) : window->accumulate(to, 0.5));
    settle(fabric, *window, options.name + " settled");
    const auto buffer = window->buffer(peer).value();
    const float expected = is_put ? 4 : 7;
    EXPECT_EQ(buffer.version, 3U);
    EXPECT_EQ(buffer.p, expected);
    EXPECT_EQ(read(buffer.tensor, true), std::vector<float>(1000, expected));
    EXPECT_EQ(read(std::span<const float>(window->self()), true), std::vector<float>(1000, 0.5F));
    sync(fabric, options.name + " done");
  }
}

TEST_F(GpuWindowEdge, APeerThatIsNamedThreeTimes) {
  run_gpu_ranks(kFake, PeerKind::kProcesses, 2, name_a_peer_three_times);
  kFake->reset();
  run_ranks({.kind = PeerKind::kThreads,
             .size = 2,
             .killed = {},
             .configure = [](Config& config) { config.transports = {"tcp"}; }},
            name_a_peer_three_times);
}

// What a reader copies is of one publication, while the owner rank publishes all the time.
TEST_F(GpuWindowEdge, GetsAreNotTorn) {
  const SharedCount stop;
  run_gpu_ranks(kFake, PeerKind::kProcesses, 2, [&stop](Fabric& fabric) {
    constexpr std::size_t kCount = 20'000;
    kFake->delay_us = 60;
    kFake->seed = 7 + static_cast<std::uint64_t>(fabric.rank().value());
    WindowOptions options = window_options(fabric, "complete", kCount, 0);
    const std::vector<double> ones(kCount, 1);
    const auto window = make_window<double>(fabric, options, std::span<const double>(ones));
    sync(fabric, "ready");
    if (fabric.rank() == Rank(1)) {
      for (int number = 2; stop->load() == 0; ++number) {
        write(window->self(), std::vector<double>(kCount, number), true);
        window->set_p(number);
        ASSERT_TRUE(window->publish().is_ok());
      }
    } else {
      const WeightedPeer from{Rank(1), 1};
      for (int i = 0; i < 40; ++i) {
        const Status status = window->get(std::span(&from, 1), std::chrono::seconds(30));
        EXPECT_TRUE(status.is_ok()) << status.to_string();
        const auto buffer = window->buffer(Rank(1)).value();
        EXPECT_EQ(read(buffer.tensor, true), std::vector<double>(kCount, buffer.p)) << i;
      }
      stop->store(1);
    }
    sync(fabric, "done");
  });
}

// When a call has returned, none of its work is in progress.
TEST_F(GpuWindowEdge, CallsReturnWhenTheirWorkHasEnded) {
  run_gpu_ranks(kFake, PeerKind::kProcesses, 2, [](Fabric& fabric) {
    constexpr std::size_t kCount = 1000;
    const WindowOptions options = window_options(fabric, "complete", kCount, 0);
    const std::vector<float> ones(kCount, 1);
    const auto window = make_window<float>(fabric, options, std::span<const float>(ones));
    const std::span<const WeightedPeer> none;
    const std::vector<WeightedPeer> peer = {{options.neighborhood.out.front(), 1}};
    const auto* const self = reinterpret_cast<const float*>(
        kFake->contents(window->self().data(), kCount * sizeof(float)));
    ASSERT_NE(self, nullptr);
    sync(fabric, "ready");
    kFake->delay_us = 20'000;
    ASSERT_TRUE(window->accumulate(peer, 0.5));
    EXPECT_EQ(self[kCount - 1], 0.5F);
    ASSERT_TRUE(window->update({4, none}));
    EXPECT_EQ(self[kCount - 1], 2);
    settle(fabric, *window, "deposited");
    const Vector copy(kCount * sizeof(float));
    const auto* const copied =
        reinterpret_cast<const float*>(kFake->contents(copy.data(), kCount * sizeof(float)));
    ASSERT_TRUE(window->buffer(peer.front().peer, {reinterpret_cast<float*>(copy.data()), kCount}));
    EXPECT_EQ(copied[kCount - 1], 2);  // the initial tensor and a deposit
    sync(fabric, "looked");
    const Status got = window->get(peer, std::chrono::seconds(30));
    EXPECT_TRUE(got.is_ok()) << got.to_string();
    const auto buffer = window->buffer(peer.front().peer).value();
    const auto* const gotten = reinterpret_cast<const float*>(
        kFake->contents(buffer.tensor.data(), kCount * sizeof(float)));
    EXPECT_EQ(gotten[kCount - 1], 2);  // the update has published its result
    kFake->delay_us = 0;
    sync(fabric, "done");
  });
}

TEST_F(GpuWindowEdge, BadArguments) {
  run_gpu_ranks(kFake, PeerKind::kThreads, 1, [](Fabric& fabric) {
    for (const int device : {-1, 2, 99}) {
      const auto made =
          NeighborWindow<float>::prepare(fabric, window_options(fabric, "complete", 10, device));
      EXPECT_EQ(made.status().code(), Code::kOutOfRange) << made.status().to_string();
    }
    WindowOptions options = window_options(fabric, "complete", 100, 0);
    const auto expect_refused = [&](const Vector& initial, const char* why) {
      options.name = why;  // a name is used once
      const Status status =
          NeighborWindow<float>::prepare(
              fabric, options,
              std::span<const float>(reinterpret_cast<float*>(initial.data()), 100))
              .status();
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
      EXPECT_NE(status.message().find(why), std::string::npos) << status.to_string();
    };
    expect_refused(Vector(40), "the initial tensor of 400 bytes leaves its allocation");
    expect_refused(Vector(400, 1), "is on GPU 1");
    WindowOptions empty = window_options(fabric, "complete", 0, 0);
    empty.name = "empty";
    const auto window = make_window<float>(fabric, empty);
    EXPECT_TRUE(window->update({1, {}, false, {}}).is_ok());
  });
}

}  // namespace
}  // namespace dunlin::testing
