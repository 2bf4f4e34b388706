// What the calls of a communicator take while they are in progress: plans, descriptors, and
// barriers that they add.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "collectives/communicator/communicator.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::Call;
using collective::Collective;
using collective::CollectiveRequest;
using collective::Communicator;
using collective::DataType;
using transport::Fabric;

void run(PeerKind kind, int size, const std::function<void(Fabric&, Communicator&)>& body) {
  run_ranks({.kind = kind, .size = size, .killed = {}, .configure = {}}, [&](Fabric& fabric) {
    auto communicator = Communicator::create(fabric, {}).value();
    body(fabric, *communicator);
    sync(fabric, "end of the communicator");
  });
}

// A call may need a barrier in front of it. Here the ranks are told to use different ones, which
// the error names.
TEST(CollectiveQueue, TuningAppliesToBarriersThatCallsAdd) {
  InProcessJob job(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([rank, bootstrap = job.bootstrap(Rank(rank))] {
      Config config = Config::from_environment().value();
      config.algorithms = rank == 0 ? "barrier=direct" : "barrier=dissemination";
      const SteadyClock clock;
      const auto fabric = Fabric::create(*bootstrap, config, clock).value();
      auto communicator = Communicator::create(*fabric, {}).value();
      const auto memory = communicator->allocate(2 * sizeof(float)).value();
      auto* const values = reinterpret_cast<float*>(memory.data());
      Status status;
      const auto broadcast = [&](const char* algorithm) {
        Call call{Collective::kBroadcast, values, values, 1, {DataType::kFloat32}};
        call.algorithm = algorithm;
        const auto request = communicator->start(call);
        status =
            request ? communicator->wait(*request, std::chrono::seconds(30)) : request.status();
      };
      // Broadcasts along a tree do not tell a member that the others have finished. The next call
      // that needs to know adds a barrier.
      for (int i = 0; i < 20 && status.is_ok(); ++i) broadcast("tree");
      if (status.is_ok())
        status = communicator->all_reduce(values, values + 1, 1, {DataType::kFloat32});
      EXPECT_THAT(status.to_string(), ::testing::HasSubstr("barrier 'direct'"));
      EXPECT_THAT(status.to_string(), ::testing::HasSubstr("barrier 'dissemination'"));
      sync(*fabric, "ended");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// More kinds of calls than plans are kept, several of them in progress at the same time.
TEST(CollectiveQueue, PlansMayBeDroppedAndMadeAgain) {
  run(PeerKind::kThreads, 3, [](Fabric&, Communicator& communicator) {
    constexpr std::size_t kMostElements = 400;
    constexpr std::size_t kAtATime = 8;
    const auto memory = communicator.allocate(kAtATime * kMostElements * sizeof(float)).value();
    auto* const values = reinterpret_cast<float*>(memory.data());
    for (int round = 0; round < 2; ++round) {
      for (std::size_t first = 1; first + kAtATime <= kMostElements; first += kAtATime) {
        std::vector<CollectiveRequest> requests;
        for (std::size_t i = 0; i < kAtATime; ++i) {
          float* const block = values + i * kMostElements;
          std::fill_n(block, first + i, 1.0F);
          requests.push_back(
              communicator
                  .start({Collective::kAllReduce, block, block, first + i, {DataType::kFloat32}})
                  .value());
        }
        for (std::size_t i = 0; i < kAtATime; ++i) {
          ASSERT_TRUE(communicator.wait(requests[i], std::chrono::seconds(30)).is_ok());
          for (std::size_t j = 0; j < first + i; ++j)
            ASSERT_EQ(values[i * kMostElements + j], 3.0F);
        }
      }
    }
  });
}

std::ptrdiff_t count_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

// Small allocations share a file, and members that import the memory keep no descriptor.
TEST(CollectiveQueue, AllocationsTakeNoDescriptorEach) {
  run(PeerKind::kProcesses, 4, [](Fabric& fabric, Communicator& communicator) {
    constexpr int kAllocations = 1000;
    const rlimit few{128, 128};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    std::vector<std::span<std::byte>> kept;
    for (int i = 0; i < kAllocations; ++i) {
      const auto memory = communicator.allocate(sizeof(float));
      ASSERT_TRUE(memory.is_ok()) << i << ": " << memory.status().to_string();
      kept.push_back(*memory);
    }
    for (const auto memory : {kept.front(), kept.back()}) {
      auto* const value = reinterpret_cast<float*>(memory.data());
      *value = 1;
      ASSERT_TRUE(communicator.all_reduce(value, value, 1, {}).is_ok());
      EXPECT_EQ(*value, 4);
    }
    EXPECT_LT(count_descriptors(), 64);
    sync(fabric, "counted");
  });
}

}  // namespace
}  // namespace dunlin::testing
