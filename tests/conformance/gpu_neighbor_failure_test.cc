// Averages with neighbors on GPU memory, of which calls of the driver fail or are canceled, on the
// stand-in for the driver.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/gpu_neighbor.h"

namespace dunlin::testing {
namespace {

// Null on a GPU. Ranks that are processes have a stand-in each.
FakeCuda* const kFake = use_gpu_library();

class GpuNeighborFailure : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kFake == nullptr) GTEST_SKIP() << "sets the stand-in up";
  }
  static void run(PeerKind kind, int size, const RankBody& body) {
    run_gpu_ranks(kFake, kind, size, body);
  }
};

// The launch fails: the call is an error on this rank. Its neighbor has all data and completes, and
// the next calls succeed.
TEST_F(GpuNeighborFailure, AFailedLaunchEndsOneCall) {
  run(PeerKind::kProcesses, 2, [](Fabric& fabric) {
    const auto exchange = make_exchange(fabric, 0);
    const Vector memory(3 * kSlot);
    memory.write(std::vector<std::byte>(3 * kSlot, std::byte{}));
    NeighborCall call{.name = "models", .count = 3 * kSlot / 4};
    call.input = call.output = memory.data();
    call.sources = call.destinations = {{Rank(1 - fabric.rank().value())}};
    if (fabric.rank() == Rank(1)) {
      kFake->failing_name = "cuLaunchKernel";
      kFake->failing_code = 719;
      kFake->failing_call = 1;
    }
    const Status status = exchange->run(call);
    if (fabric.rank() == Rank(1)) {
      EXPECT_EQ(status.code(), Code::kIoError) << status.to_string();
      EXPECT_NE(status.message().find("'models': an average on a GPU: cuLaunchKernel"),
                std::string::npos)
          << status.to_string();
    } else {
      EXPECT_TRUE(status.is_ok()) << status.to_string();
    }
    for (int i = 0; i < 5; ++i) {
      const Status next = exchange->run(call);
      EXPECT_TRUE(next.is_ok()) << next.to_string();
    }
    sync(fabric, "done");
  });
}

// A copy out fails: the neighbor hears of it, whether it has made its call or makes it later.
TEST_F(GpuNeighborFailure, ANeighborHearsOfAFailedCopy) {
  run(PeerKind::kProcesses, 2, [](Fabric& fabric) {
    const auto exchange = make_exchange(fabric, 0);
    const Vector memory(3 * kSlot);
    memory.write(std::vector<std::byte>(3 * kSlot, std::byte{}));
    NeighborCall call{.name = "models", .count = 3 * kSlot / 4};
    call.input = call.output = memory.data();
    // One way only: a rank that waits for room at a peer needs that peer's progress.
    if (fabric.rank() == Rank(0)) call.sources = {{Rank(1)}};
    if (fabric.rank() == Rank(1)) call.destinations = {{Rank(0)}};
    for (const bool fails_later : {false, true}) {
      if (fabric.rank() == Rank(1)) {
        // The event that tells of the end of a copy: from then on, the exchange is of no use.
        kFake->failing_name = fails_later ? "cuEventQuery" : "cuMemcpyAsync";
        kFake->failing_code = 719;
        kFake->failing_call = 1;
      }
      const Status status = exchange->run(call);
      EXPECT_EQ(status.code(), Code::kIoError) << status.to_string();
      const char* const what = fabric.rank() == Rank(0) ? "'models'" : kFake->failed_call.c_str();
      EXPECT_NE(status.message().find(what), std::string::npos) << status.to_string();
      if (fabric.rank() == Rank(0)) {
        EXPECT_EQ(status.peer(), Rank(1)) << status.to_string();
        EXPECT_NE(status.message().find("its data will not come"), std::string::npos)
            << status.to_string();
      }
    }
    sync(fabric, "done");
  });
}

// A canceled call's memory is the caller's again, so the GPU must be done with it. The process does
// not sleep while the GPU works.
TEST_F(GpuNeighborFailure, CancelingWaitsForTheGpu) {
  run(PeerKind::kThreads, 1, [](Fabric& fabric) {
    const auto exchange = make_exchange(fabric, 0);
    const Vector memory(4000);
    const NeighborCall call{.input = memory.data(), .output = memory.data(), .count = 1000};
    kFake->hold();
    const NeighborRequest request = exchange->start(call).value();
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(exchange->test(request).is_busy());
    EXPECT_FALSE(fabric.arm());
    fabric.disarm();
    std::thread releaser([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      kFake->release();
    });
    exchange->give_up(request, collective::Missed::kDropped);
    EXPECT_EQ(kFake->launches, 1u);
    releaser.join();
    EXPECT_TRUE(exchange->run(call).is_ok());
  });
}

}  // namespace
}  // namespace dunlin::testing
