// Stochastic reduce of models in the memory of a GPU, over shm, on a GPU or on the stand-in for its
// driver: it has the bits of models in host memory.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "collectives/graph/generators.h"
#include "collectives/stochastic/stochastic_reduce.h"
#include "runtime/gpu/cuda_driver.h"
#include "tests/support/gpu.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::Graph;
using collective::make_graph;
using collective::neighborhood_of;
using collective::ReduceOptions;
using collective::StochasticReduce;
using collective::SyncMode;
using collective::Weighting;
using transport::Fabric;

// Null on a GPU. Ranks that are processes have a stand-in each.
FakeCuda* const kFake = use_gpu_library();

ReduceOptions options_of(Fabric& fabric, const Graph& graph, std::optional<int> gpu,
                         Weighting weighting = Weighting::kUniform) {
  ReduceOptions options;
  options.name = gpu ? "gpu" : "host";
  for (int rank = 0; rank < fabric.size(); ++rank) options.membership.members.emplace_back(rank);
  options.neighborhood =
      neighborhood_of(graph, weighting, options.membership.members, fabric.rank()).value();
  options.gpu = gpu;
  return options;
}

class GpuReduceTest : public ::testing::TestWithParam<PeerKind> {
 protected:
  static void run(int size, const RankBody& body) { run_gpu_ranks(kFake, GetParam(), size, body); }
};

template <typename T>
void compare_with_host(Fabric& fabric, const char* spec, std::size_t count, std::uint32_t depth,
                       Weighting weighting = Weighting::kUniform) {
  constexpr int kSteps = 6;
  const Graph graph = make_graph(spec, fabric.size()).value();
  const auto make = [&](std::optional<int> gpu) {
    ReduceOptions options = options_of(fabric, graph, gpu, weighting);
    options.count = count;
    options.depth = depth;
    auto reduce = StochasticReduce<T>::prepare(fabric, options).value();
    const Status status = reduce->connect();
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    return reduce;
  };
  const auto host = make(std::nullopt);
  const auto gpu = make(0);
  const auto driver = load_cuda_driver().value();
  if (kFake != nullptr) kFake->delay_us = 200;
  std::mt19937_64 random(static_cast<std::uint64_t>(fabric.rank().value()));
  std::uniform_real_distribution<T> values(-1, 1);
  for (int step = 1; step <= kSteps; ++step) {
    for (T& value : host->model()) value += values(random);
    const std::size_t bytes = host->model().size_bytes();
    copy_and_await(*driver, [&](GpuStream& stream) {
      return stream.copy_to_device(gpu->model().data(), host->model().data(), bytes);
    });
    for (StochasticReduce<T>* const each : {host.get(), gpu.get()}) {
      const auto report = each->reduce(std::chrono::seconds(60) * timeout_factor());
      ASSERT_TRUE(report.is_ok()) << report.status().to_string();
      EXPECT_EQ(static_cast<int>(report->inputs), graph.in_degree(fabric.rank().value()));
    }
    std::vector<T> found(count);
    copy_and_await(*driver, [&](GpuStream& stream) {
      return stream.copy_to_host(found.data(), gpu->model().data(), bytes);
    });
    ASSERT_EQ(std::memcmp(found.data(), host->model().data(), bytes), 0)
        << spec << ", " << count << " elements, step " << step;
  }
  sync(fabric, std::string("all are done with ") + spec);
}

TEST_P(GpuReduceTest, HasTheBitsOfHostMemory) {
  for (const char* spec : {"complete", "ring", "star", "exponential"}) {
    run(4, [spec](Fabric& fabric) { compare_with_host<float>(fabric, spec, 1003, 1); });
    run(4, [spec](Fabric& fabric) { compare_with_host<double>(fabric, spec, 64, 3); });
  }
  // Weights that differ.
  run(4, [](Fabric& fabric) {
    compare_with_host<float>(fabric, "chain", 1003, 2, Weighting::kMetropolis);
  });
}

// A model of a few bytes would travel inside its notification in host memory.
TEST_P(GpuReduceTest, SmallLargeAndSingle) {
  run(3, [](Fabric& fabric) { compare_with_host<float>(fabric, "complete", 1, 2); });
  run(2, [](Fabric& fabric) { compare_with_host<float>(fabric, "complete", 100'000, 2); });
  run(1, [](Fabric& fabric) { compare_with_host<double>(fabric, "complete", 10, 2); });
}

TEST_P(GpuReduceTest, TheWeakerModesNeedHostMemory) {
  run(2, [](Fabric& fabric) {
    for (const SyncMode mode : {SyncMode::kBsp, SyncMode::kAsync}) {
      ReduceOptions options = options_of(fabric, make_graph("complete", 2).value(), 0);
      options.count = 100;
      options.mode = mode;
      const Status status = StochasticReduce<float>::prepare(fabric, options).status();
      EXPECT_EQ(status.code(), Code::kInvalidArgument);
      EXPECT_NE(status.message().find("need the mode notify-ack"), std::string::npos)
          << status.to_string();
    }
    sync(fabric, "done");
  });
}

TEST_P(GpuReduceTest, MembersWithAndWithoutAGpuDoNotMix) {
  run(2, [](Fabric& fabric) {
    const bool has_gpu = fabric.rank() == Rank(1);
    ReduceOptions options = options_of(fabric, make_graph("complete", 2).value(),
                                       has_gpu ? std::optional(0) : std::nullopt);
    options.name = "mixed";
    options.count = 100;
    auto reduce = StochasticReduce<float>::prepare(fabric, options).value();
    const Status status = reduce->connect();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find(has_gpu ? "the peer are in host memory, those of this rank in "
                                              "GPU memory"
                                            : "the peer are in GPU memory, those of this rank in "
                                              "host memory"),
              std::string::npos)
        << status.to_string();
    sync(fabric, "done");
  });
}

// The launch fails: the reduce is an error on this rank. Its neighbor has both models and
// completes.
TEST_P(GpuReduceTest, AFailedLaunchIsAnError) {
  if (kFake == nullptr) GTEST_SKIP() << "sets the stand-in up";
  if (GetParam() == PeerKind::kThreads) GTEST_SKIP() << "the threads have one stand-in";
  run(2, [](Fabric& fabric) {
    ReduceOptions options = options_of(fabric, make_graph("complete", 2).value(), 0);
    options.count = 100;
    auto reduce = StochasticReduce<float>::prepare(fabric, options).value();
    ASSERT_TRUE(reduce->connect().is_ok());
    if (fabric.rank() == Rank(1)) {
      kFake->failing_name = "cuLaunchKernel";
      kFake->failing_code = 719;
      kFake->failing_call = 1;
    }
    const auto report = reduce->reduce(std::chrono::seconds(60) * timeout_factor());
    if (fabric.rank() == Rank(1)) {
      EXPECT_EQ(report.status().code(), Code::kIoError) << report.status().to_string();
      EXPECT_NE(report.status().message().find("an average on a GPU: cuLaunchKernel"),
                std::string::npos)
          << report.status().to_string();
    } else {
      EXPECT_TRUE(report.is_ok()) << report.status().to_string();
    }
    sync(fabric, "done");
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, GpuReduceTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

}  // namespace
}  // namespace dunlin::testing
