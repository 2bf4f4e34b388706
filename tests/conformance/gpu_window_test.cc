// Windows in the memory of a GPU, on a GPU or on the stand-in for its driver: what they hold has
// the bits that it has in host memory, over mapped memory and over messages; deposits need no call
// of the neighbor; errors of the driver and bad arguments are errors of the call.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/conformance/gpu_window.h"
#include "tests/conformance/shared.h"
#include "tests/support/seeds.h"

namespace dunlin::testing {
namespace {

using collective::NeighborWindow;
using collective::WeightedPeer;
using collective::WindowOptions;

// Null on a GPU. Ranks that are processes have a stand-in each.
FakeCuda* const kFake = use_gpu_library();

constexpr auto kTimeout = std::chrono::seconds(30);

template <typename T>
void expect_same_bits(const std::vector<T>& found, const std::vector<T>& expected,
                      const std::string& where) {
  ASSERT_EQ(found.size(), expected.size());
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(std::bit_cast<Bits>(found[i]), std::bit_cast<Bits>(expected[i]))
        << where << ": element " << i << " is " << found[i] << ", not " << expected[i];
  }
}

// The same random operations in host memory and on the GPU.
template <typename T>
void compare_with_host(Fabric& fabric, std::size_t count, bool reads) {
  if (kFake != nullptr) kFake->delay_us = 20;
  std::mt19937_64 own(static_cast<std::uint64_t>(fabric.rank().value()) + count);
  std::mt19937_64 common(count);
  std::normal_distribution<T> draw;
  std::vector<T> initial(count);
  for (T& element : initial) element = draw(own);
  const WindowOptions host_options = window_options(fabric, "exponential", count, std::nullopt);
  const WindowOptions gpu_options = window_options(fabric, "exponential", count, 0);
  const auto host = make_window<T>(fabric, host_options, initial);
  const auto gpu = make_window<T>(fabric, gpu_options, initial);
  const Vector room(std::max<std::size_t>(count * sizeof(T), 1));
  const std::span<T> gpu_result(reinterpret_cast<T*>(room.data()), count);
  std::vector<T> host_result(count);
  const auto both = [&](const auto& use) {
    use(*host, false, std::span<T>(host_result));
    use(*gpu, true, gpu_result);
  };
  const auto& around = host_options.neighborhood;
  for (int round = 0; round < 12; ++round) {
    const std::string where = fmt::format("{} elements, round {}", count, round);
    for (T& element : initial) element = draw(own);
    std::vector<WeightedPeer> to;
    for (const Rank peer : around.out) to.push_back({peer, round % 3 == 0 ? 1 : draw(own)});
    std::vector<WeightedPeer> from;
    for (const Rank peer : around.in) {
      if (common() % 4 != 0) from.push_back({peer, draw(own)});
    }
    const bool is_put = own() % 3 == 0;
    const double self_weight = own() % 2 == 0 ? 1 : 0.75;
    both([&](NeighborWindow<T>& window, bool is_on_gpu, std::span<T>) {
      write(window.self(), initial, is_on_gpu);
      for (int deposit = 0; deposit < 2; ++deposit) {
        const auto made = is_put ? window.put(to, self_weight) : window.accumulate(to, self_weight);
        ASSERT_TRUE(made) << where << ": " << made.status().to_string();
      }
    });
    settle(fabric, *host, where + " host");
    settle(fabric, *gpu, where + " gpu");
    sync(fabric, where + " settled");
    if (reads && round % 4 == 2) {
      const std::vector<WeightedPeer> one = {{around.in.front(), 0.5}};
      both([&](NeighborWindow<T>& window, bool, std::span<T>) {
        const Status status = window.get(one, kTimeout);
        ASSERT_TRUE(status.is_ok()) << where << ": " << status.to_string();
      });
      sync(fabric, where + " read");  // an update publishes its result
    }
    for (const Rank peer : around.in) {
      std::vector<std::vector<T>> tensors;
      std::vector<double> scalars;
      both([&](NeighborWindow<T>& window, bool is_on_gpu, std::span<T>) {
        const auto buffer = window.buffer(peer);
        ASSERT_TRUE(buffer) << buffer.status().to_string();
        tensors.push_back(read(buffer->tensor, is_on_gpu));
        scalars.push_back(buffer->p);
      });
      expect_same_bits(tensors[1], tensors[0], fmt::format("{}, buffer {}", where, peer.value()));
      EXPECT_EQ(scalars[1], scalars[0]) << where;
    }
    const bool is_to_self = round % 2 == 0;
    const bool reset = common() % 2 == 0;
    std::vector<std::vector<T>> results;
    std::vector<double> reports;
    both([&](NeighborWindow<T>& window, bool is_on_gpu, std::span<T> room_for_it) {
      const auto report =
          window.update({0.5, from, reset, is_to_self ? std::span<T>() : room_for_it});
      ASSERT_TRUE(report) << where << ": " << report.status().to_string();
      results.push_back(
          read(std::span<const T>(is_to_self ? window.self() : room_for_it), is_on_gpu));
      reports.push_back(report->p);
    });
    if (::testing::Test::HasFatalFailure()) return;
    expect_same_bits(results[1], results[0], where + ", the result");
    EXPECT_EQ(reports[1], reports[0]) << where;
    sync(fabric, where + " done");
  }
}

class GpuWindowTest : public ::testing::TestWithParam<PeerKind> {
 protected:
  static void run(int size, const RankBody& body) { run_gpu_ranks(kFake, GetParam(), size, body); }
};

TEST_P(GpuWindowTest, HasTheBitsOfHostMemory) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1003}}) {
    run(4, [count](Fabric& fabric) { compare_with_host<float>(fabric, count, true); });
  }
  run(3, [](Fabric& fabric) { compare_with_host<double>(fabric, 100'003, true); });
}

// A rank that calls nothing until the others have ended all their operations.
TEST_P(GpuWindowTest, DepositsNeedNoCallOfTheNeighbor) {
  const SharedCount done;
  run(3, [&done](Fabric& fabric) {
    constexpr int kRounds = 20;
    WindowOptions options = window_options(fabric, "complete", 500, 0);
    options.is_zeroed = true;
    const auto window = make_window<float>(fabric, options);
    write(window->self(), std::vector<float>(500, 1), true);
    sync(fabric, "ready");
    std::vector<WeightedPeer> to;
    for (const Rank peer : options.neighborhood.out) to.push_back({peer, 1});
    if (fabric.rank() == Rank(2)) {
      EXPECT_TRUE(await_count(done, fabric.size() - 1)) << "another rank waits for the idle one";
      for (const Rank peer : options.neighborhood.in) {
        const auto buffer = window->buffer(peer).value();
        EXPECT_EQ(buffer.version, static_cast<std::uint64_t>(kRounds));
        EXPECT_EQ(read(buffer.tensor, true), std::vector<float>(500, kRounds));
      }
    } else {
      for (int round = 0; round < kRounds; ++round) {
        const auto made = window->accumulate(to);
        ASSERT_TRUE(made) << made.status().to_string();
        EXPECT_TRUE(window->test(*made).is_ok());
      }
      done->fetch_add(1);
    }
    sync(fabric, "done");
  });
}

// One launch per neighbor, and no copy through host memory.
TEST_P(GpuWindowTest, ADepositIsOneLaunchPerNeighbor) {
  if (kFake == nullptr) GTEST_SKIP() << "counts what the stand-in sees";
  run(3, [](Fabric& fabric) {
    WindowOptions options = window_options(fabric, "complete", 500, 0);
    options.is_readable = false;
    const auto window = make_window<float>(fabric, options);
    std::vector<WeightedPeer> to;
    for (const Rank peer : options.neighborhood.out) to.push_back({peer, 0.5});
    sync(fabric, "ready");
    const std::uint64_t launches = kFake->launches;
    const std::uint64_t copies = kFake->copies;
    sync(fabric, "counted");
    ASSERT_TRUE(window->accumulate(to));
    sync(fabric, "deposited");
    ASSERT_TRUE(window->update());
    sync(fabric, "updated");
    // Ranks that are threads have one stand-in.
    const std::uint64_t ranks = GetParam() == PeerKind::kThreads ? 3 : 1;
    // The initial tensor is in the buffers, to which deposits are added: one launch each. The
    // update is another one.
    EXPECT_EQ(kFake->launches - launches, ranks * (2 + 2 + 1));
    EXPECT_EQ(kFake->copies - copies, 0U);
    sync(fabric, "done");
  });
}

TEST_P(GpuWindowTest, RefusesMemoryOfOtherKinds) {
  run(2, [](Fabric& fabric) {
    const WindowOptions options = window_options(fabric, "complete", 100, 0);
    const auto window = make_window<double>(fabric, options);
    const auto expect_refused = [&](std::span<double> result, const char* why) {
      const Status status = window->update({1, {}, false, result}).status();
      EXPECT_EQ(status.code(), Code::kInvalidArgument);
      EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
    };
    std::vector<double> host(100);
    expect_refused(host, "the result of 800 bytes is in host memory");
    const Vector room(99 * sizeof(double));
    expect_refused({reinterpret_cast<double*>(room.data()), 100}, "leaves its allocation");
    expect_refused({reinterpret_cast<double*>(room.data()), 99}, "room for 99 elements");
    const Vector large(101 * sizeof(double));
    expect_refused({reinterpret_cast<double*>(large.data() + 1), 100}, "not aligned to float64");
    EXPECT_EQ(window->buffer(Rank(1 - fabric.rank().value()), host).status().code(),
              Code::kInvalidArgument);
    EXPECT_TRUE(window->update().is_ok()) << "a refused call does no harm";
    sync(fabric, "done");
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, GpuWindowTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

// Ranks that don't share GPU memory: every rank has another GPU, or the transport reaches hosts
// only. Deposits travel in messages.
class GpuWindowMessages : public ::testing::Test {
 protected:
  static void run(int size, const std::string& transport, const RankBody& body) {
    if (kFake != nullptr) kFake->reset();
    run_ranks({.kind = PeerKind::kThreads,
               .size = size,
               .killed = {},
               .configure = [&](Config& config) { config.transports = {transport}; }},
              body);
    if (kFake != nullptr) expect_nothing_left(*kFake);
  }
};

TEST_F(GpuWindowMessages, HaveTheBitsOfHostMemory) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1003}}) {
    run(4, "tcp", [count](Fabric& fabric) { compare_with_host<double>(fabric, count, false); });
  }
  run(3, "tcp", [](Fabric& fabric) { compare_with_host<float>(fabric, 50'003, false); });
}

TEST_F(GpuWindowMessages, CannotBeRead) {
  run(2, "tcp", [](Fabric& fabric) {
    const WindowOptions options = window_options(fabric, "complete", 10, 0);
    const auto window = make_window<double>(fabric, options);
    const WeightedPeer from{options.neighborhood.in.front(), 1};
    const Status status = window->get(std::span(&from, 1), kTimeout);
    EXPECT_EQ(status.code(), Code::kUnavailable) << status.to_string();
    EXPECT_EQ(status.peer(), from.peer);
    EXPECT_NE(status.message().find("is not open here"), std::string::npos) << status.to_string();
    sync(fabric, "done");
  });
}

TEST_F(GpuWindowMessages, TravelBetweenGpus) {
  if (load_cuda_driver().value()->devices().size() < 2) GTEST_SKIP() << "there is one GPU";
  run(2, "shm", [](Fabric& fabric) {
    const int device = fabric.rank().value();
    WindowOptions options = window_options(fabric, "complete", 300, device);
    options.is_zeroed = true;
    std::vector<float> initial(300, static_cast<float>(device + 1));
    const auto window = make_window<float>(fabric, options, std::span<const float>(initial));
    const WeightedPeer to{options.neighborhood.out.front(), 0.5};
    ASSERT_TRUE(window->accumulate(std::span(&to, 1)));
    ASSERT_TRUE(window->accumulate(std::span(&to, 1)));
    settle(fabric, *window, "deposited");
    const auto report = window->update_then_collect();
    ASSERT_TRUE(report) << report.status().to_string();
    EXPECT_EQ(report->deposits, 2U);
    std::vector<float> found(300);
    copy_and_await(*load_cuda_driver().value(), [&](GpuStream& stream) {
      return stream.copy_to_host(found.data(), window->self().data(), 1200);
    });
    EXPECT_EQ(found, std::vector<float>(300, 3));
    sync(fabric, "done");
  });
}

// Any call of the driver fails: this rank gets an error that names the call, and so does every
// later operation that needs the GPU; or the failed call did not matter. The neighbor goes on.
TEST(GpuWindowFailure, IsAnErrorThatNamesTheCall) {
  if (kFake == nullptr) GTEST_SKIP() << "sets the stand-in up";
  for (std::uint64_t failing = 1; failing <= testing::seeds(60); ++failing) {
    run_gpu_ranks(kFake, PeerKind::kProcesses, 2, [failing](Fabric& fabric) {
      WindowOptions options = window_options(fabric, "complete", 200, 0);
      options.is_zeroed = true;
      const std::vector<float> ones(200, 1);
      const auto window = make_window<float>(fabric, options, std::span<const float>(ones));
      const WeightedPeer to{options.neighborhood.out.front(), 0.5};
      const bool fails = fabric.rank() == Rank(1);
      sync(fabric, "ready");
      if (fails) {
        kFake->failing_code = 719;
        kFake->failing_call = failing;
      }
      Status failure;
      for (int round = 0; round < 3; ++round) {
        for (const Status& status :
             {window->accumulate(std::span(&to, 1)).status(), window->update().status()}) {
          if (failure.is_ok()) {
            failure = status;
          } else {
            EXPECT_EQ(status.code(), failure.code()) << "round " << round;
          }
        }
      }
      if (fails && !failure.is_ok()) {
        EXPECT_EQ(failure.code(), Code::kIoError) << failure.to_string();
        EXPECT_NE(failure.message().find(kFake->failed_call), std::string::npos)
            << failure.to_string() << " after a failed " << kFake->failed_call;
      } else {
        EXPECT_TRUE(failure.is_ok()) << failure.to_string();
      }
      kFake->failing_call = 0;
      sync(fabric, "done");
    });
  }
}

}  // namespace
}  // namespace dunlin::testing
