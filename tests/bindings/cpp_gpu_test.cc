// The public C++ interface on the memory of a GPU: the stand-in for CUDA's driver
// (tests/fake_cuda), which the test finds as libcuda.so.1.
#include <dlfcn.h>
#include <dunlin/communicator.h>
#include <dunlin/group_average.h>
#include <dunlin/neighbor.h>
#include <dunlin/partial_all_reduce.h>
#include <dunlin/stochastic_reduce.h>

#include <array>
#include <chrono>
#include <cstring>
#include <vector>

#include "tests/bindings/cpp_ranks.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace dunlin_test {
namespace {

using dunlin::Code;
using dunlin::Communicator;
using dunlin::GroupAverage;
using dunlin::GroupAverageOptions;
using dunlin::GroupSource;
using dunlin::Job;
using dunlin::NeighborCall;
using dunlin::Neighbors;
using dunlin::PartialAllReduce;
using dunlin::PartialCall;
using dunlin::Rank;
using dunlin::ReduceOp;
using dunlin::testing::FakeCuda;
using dunlin::testing::FakeCudaState;

FakeCuda* stand_in() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  void* const found = library == nullptr ? nullptr : dlsym(library, "fake_cuda");
  return found == nullptr ? nullptr : &reinterpret_cast<FakeCudaState*>(found)();
}

TEST(CppGpu, ACommunicatorOfGpusReducesInItsMemory) {
  FakeCuda* const fake = stand_in();
  if (fake == nullptr) GTEST_SKIP() << "needs the stand-in for CUDA's driver in LD_LIBRARY_PATH";
  fake->delay_us = 500;
  constexpr int kRanks = 3;
  run_ranks(kRanks, [&](Job& job) {
    constexpr std::size_t kCount = 100'000;
    Communicator world = get(Communicator::create(job, {.gpu = 0}));
    const std::span<float> values = get(world.allocate<float>(kCount));
    std::byte* const contents = fake->contents(values.data(), values.size_bytes());
    ASSERT_NE(contents, nullptr) << "not the memory of a GPU";
    std::vector<float> host(kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      host[i] = static_cast<float>(i % 97) + static_cast<float>(job.rank().value());
    std::memcpy(contents, host.data(), values.size_bytes());
    EXPECT_OK(world.all_reduce(values, ReduceOp::kAverage));
    std::memcpy(host.data(), contents, values.size_bytes());
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(host[i], static_cast<float>(i % 97) + 1);
    std::vector<float> own(8);
    EXPECT_EQ(world.all_reduce(std::span(own), ReduceOp::kSum).code(), Code::kInvalidArgument);
    // A part of the world has memory of the same GPU.
    Communicator part = get(world.split(job.rank().value() % 2, 0));
    EXPECT_EQ(part.size(), (job.size() + 1 - job.rank().value() % 2) / 2);
    const std::span<float> one = get(part.allocate<float>(4));
    std::byte* const place = fake->contents(one.data(), one.size_bytes());
    ASSERT_NE(place, nullptr) << "not the memory of a GPU";
    const std::array<float, 4> ones{1, 1, 1, 1};
    std::memcpy(place, ones.data(), sizeof ones);
    EXPECT_OK(part.all_reduce(one, ReduceOp::kSum));
    std::array<float, 4> sums{};
    std::memcpy(sums.data(), place, sizeof sums);
    EXPECT_EQ(sums[3], static_cast<float>(part.size()));
    EXPECT_OK(world.barrier());
    EXPECT_OK(world.barrier());
  });
  EXPECT_GT(fake->launches, 0u);
  EXPECT_EQ(fake->allocations(), 0);
}

TEST(CppGpu, NeighborsAverageInItsMemory) {
  FakeCuda* const fake = stand_in();
  if (fake == nullptr) GTEST_SKIP() << "needs the stand-in for CUDA's driver in LD_LIBRARY_PATH";
  fake->delay_us = 200;
  run_ranks(2, [&](Job& job) {
    constexpr std::size_t kCount = 5000;
    // Any memory of the GPU will do, and a communicator has some.
    Communicator world = get(Communicator::create(job, {.gpu = 0}));
    const std::span<float> values = get(world.allocate<float>(kCount));
    std::byte* const contents = fake->contents(values.data(), values.size_bytes());
    ASSERT_NE(contents, nullptr) << "not the memory of a GPU";
    std::vector<float> host(kCount, static_cast<float>(job.rank().value()));
    std::memcpy(contents, host.data(), values.size_bytes());
    Neighbors neighbors = get(Neighbors::create(job, {.slot_bytes = 8192, .gpu = 0}));
    NeighborCall call{.input = values.data(), .output = values.data(), .count = kCount};
    call.self_weight = 0.5;
    call.sources = {{Rank(1 - job.rank().value()), 0.5}};
    call.destinations = {{Rank(1 - job.rank().value()), 1.0}};
    EXPECT_OK(neighbors.average(call));
    std::memcpy(host.data(), contents, values.size_bytes());
    EXPECT_EQ(host, std::vector<float>(kCount, 0.5F));
    call.input = host.data();
    EXPECT_EQ(neighbors.average(call).code(), Code::kInvalidArgument);
    EXPECT_OK(world.barrier());
  });
  EXPECT_EQ(fake->allocations(), 0);
}

TEST(CppGpu, GroupsAverageInItsMemory) {
  FakeCuda* const fake = stand_in();
  if (fake == nullptr) GTEST_SKIP() << "needs the stand-in for CUDA's driver in LD_LIBRARY_PATH";
  fake->delay_us = 200;
  run_ranks(2, [&](Job& job) {
    constexpr std::size_t kCount = 5000;
    const auto set = [&](std::span<float> values, float value) {
      std::byte* const contents = fake->contents(values.data(), values.size_bytes());
      ASSERT_NE(contents, nullptr) << "not the memory of a GPU";
      const std::vector<float> host(values.size(), value);
      std::memcpy(contents, host.data(), values.size_bytes());
    };
    const auto expect = [&](std::span<const float> values, float value) {
      std::vector<float> host(values.size());
      std::memcpy(host.data(), fake->contents(values.data(), values.size_bytes()),
                  values.size_bytes());
      EXPECT_EQ(host, std::vector<float>(values.size(), value));
    };
    Communicator world = get(Communicator::create(job));
    PartialAllReduce partial = get(PartialAllReduce::create(job, {.gpu = 0}));
    const std::span<float> model = get(partial.allocate<float>(kCount));
    const std::span<float> copied = get(partial.allocate<float>(kCount));
    set(model, static_cast<float>(job.rank().value()));
    PartialCall call{.number = 1, .members = {Rank(0), Rank(1)}};
    call.input = call.output = model.data();
    call.count = kCount;
    EXPECT_OK(partial.run(call));
    expect(model, 0.5F);
    EXPECT_OK(partial.copy(std::as_writable_bytes(copied), std::as_bytes(model)));
    expect(copied, 0.5F);
    const auto copy = [&](std::span<float> to, std::span<const float> from) {
      return partial.copy(std::as_writable_bytes(to), std::as_bytes(from)).code();
    };
    std::vector<float> host(kCount);
    EXPECT_EQ(copy(copied.first(kCount - 1), model), Code::kInvalidArgument);
    EXPECT_EQ(copy(copied, model.first(kCount - 1)), Code::kInvalidArgument);
    EXPECT_EQ(copy(host, model), Code::kInvalidArgument);
    EXPECT_EQ(copy(copied, host), Code::kInvalidArgument);
    EXPECT_EQ(copy({copied.data() + 1, kCount}, model), Code::kInvalidArgument);
    EXPECT_EQ(copy(model.subspan(1, 8), model.first(8)), Code::kInvalidArgument);
    EXPECT_EQ(copy({}, {}), Code::kOk);
    expect(copied, 0.5F);
    GroupAverageOptions options{.name = "groups", .count = kCount, .source = GroupSource::kStatic};
    options.gpu = 0;
    GroupAverage average = get(GroupAverage::create(job, options));
    set(average.model(), static_cast<float>(job.rank().value()));
    for (std::uint64_t iteration = 0; iteration < 4; ++iteration) EXPECT_OK(average.run(iteration));
    expect(average.model(), 0.5F);
    EXPECT_OK(world.barrier());
  });
  EXPECT_EQ(fake->allocations(), 0);
}

TEST(CppGpu, AStochasticReduceAveragesInItsMemory) {
  FakeCuda* const fake = stand_in();
  if (fake == nullptr) GTEST_SKIP() << "needs the stand-in for CUDA's driver in LD_LIBRARY_PATH";
  fake->delay_us = 200;
  run_ranks(3, [&](Job& job) {
    constexpr std::size_t kCount = 5000;
    const auto graph = get(dunlin::make_graph("complete", job.size()));
    dunlin::ReduceOptions options{.count = kCount, .gpu = 0};
    options.neighborhood = get(dunlin::neighborhood_of(graph, dunlin::Weighting::kUniform,
                                                       job.members().ranks, job.rank()));
    auto reduce = get(dunlin::StochasticReduce<double>::create(job, options));
    std::byte* const contents = fake->contents(reduce.model().data(), reduce.model().size_bytes());
    ASSERT_NE(contents, nullptr) << "not the memory of a GPU";
    std::vector<double> host(kCount, 3.0 * job.rank().value());
    std::memcpy(contents, host.data(), reduce.model().size_bytes());
    EXPECT_EQ(get(reduce.reduce(std::chrono::seconds(60))).inputs, 2U);
    std::memcpy(host.data(), contents, reduce.model().size_bytes());
    EXPECT_NEAR(host.front(), 3, 1e-12);
    EXPECT_NEAR(host.back(), 3, 1e-12);
    options.mode = dunlin::SyncMode::kBsp;
    EXPECT_EQ(dunlin::StochasticReduce<double>::create(job, options).status().code(),
              Code::kInvalidArgument);
    EXPECT_OK(job.barrier());
  });
  EXPECT_EQ(fake->allocations(), 0);
}

TEST(CppGpu, AGpuThatIsNotThereIsAnError) {
  if (stand_in() == nullptr) GTEST_SKIP() << "needs the stand-in in LD_LIBRARY_PATH";
  run_ranks(1, [](Job& job) {
    EXPECT_EQ(Communicator::create(job, {.gpu = 7}).status().code(), Code::kOutOfRange);
  });
}

}  // namespace
}  // namespace dunlin_test
