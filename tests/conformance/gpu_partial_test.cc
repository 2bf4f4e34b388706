// Partial all-reduces and group averages on the memory of a GPU, over shm, on a GPU or on the
// stand-in for its driver: they have the bits that they have on host memory.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "collectives/groups/group_average.h"
#include "runtime/gpu/cuda_driver.h"
#include "tests/collectives/reduce_operands.h"
#include "tests/conformance/partial_support.h"
#include "tests/support/gpu.h"
#include "tests/support/mixed_models.h"

namespace dunlin::testing {
namespace {

using collective::GroupAverage;
using collective::GroupAverageOptions;
using collective::GroupSource;

// Null on a GPU. Ranks that are processes have a stand-in each.
FakeCuda* const kFake = use_gpu_library();

void write(std::byte* to, const std::vector<std::byte>& bytes) {
  if (bytes.empty()) return;
  copy_and_await(*load_cuda_driver().value(), [&](GpuStream& stream) {
    return stream.copy_to_device(to, bytes.data(), bytes.size());
  });
}

std::vector<std::byte> read(const std::byte* from, std::size_t size) {
  std::vector<std::byte> bytes(size);
  if (size == 0) return bytes;
  copy_and_await(*load_cuda_driver().value(),
                 [&](GpuStream& stream) { return stream.copy_to_host(bytes.data(), from, size); });
  return bytes;
}

PartialOptions options_of(std::string name, std::optional<int> gpu) {
  PartialOptions options;
  options.name = std::move(name);
  options.scratch_bytes = 64 << 10;
  options.segment_bytes = 8 << 10;
  options.gpu = gpu;
  return options;
}

class GpuPartialTest : public ::testing::TestWithParam<PeerKind> {
 protected:
  static void run(int size, const RankBody& body) { run_gpu_ranks(kFake, GetParam(), size, body); }
};

// Random groups, one after the other, on host memory and on that of a GPU.
void compare_with_host(Fabric& fabric, const std::string& algorithm) {
  constexpr std::size_t kMost = 20'000;
  constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat64};
  PartialOptions host_options = options_of("host " + algorithm, std::nullopt);
  PartialOptions gpu_options = options_of("gpu " + algorithm, 0);
  host_options.algorithm = gpu_options.algorithm = algorithm;
  const auto host = make_partial(fabric, host_options);
  const auto gpu = make_partial(fabric, gpu_options);
  std::byte* const on_host = host->allocate(2 * kMost * 8).value().data();
  std::byte* const on_gpu = gpu->allocate(2 * kMost * 8).value().data();
  if (kFake != nullptr) kFake->delay_us = 100;
  std::mt19937_64 common(5);
  std::mt19937_64 own(static_cast<std::uint64_t>(fabric.rank().value()));
  for (std::uint64_t number = 1; number <= 24; ++number) {
    const Members group = MixedModels::draw_group(common, fabric.size());
    const DataType type = kTypes[common() % std::size(kTypes)];
    const ReduceOp op = common() % 3 == 0 ? ReduceOp::kMax : ReduceOp::kAverage;
    const std::size_t count = number % 4 == 0 ? common() % 5 : common() % kMost;
    const bool is_in_place = common() % 2 == 0;
    if (std::ranges::find(group, fabric.rank()) == group.end()) continue;
    const std::size_t size = count * size_of(type);
    std::vector<std::byte> input(size);
    collective::reference::fill_operands(type, own, input.data(), count);
    std::copy(input.begin(), input.end(), on_host);
    write(on_gpu, input);
    PartialCall call{.number = number, .members = group};
    call.count = count;
    call.reduction = {type, op};
    const std::size_t at = is_in_place ? 0 : kMost * 8;
    call.input = on_host;
    call.output = on_host + at;
    ASSERT_TRUE(host->run(call).is_ok());
    call.input = on_gpu;
    call.output = on_gpu + at;
    const Status status = gpu->run(call);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    ASSERT_EQ(read(on_gpu + at, size), std::vector<std::byte>(on_host + at, on_host + at + size))
        << "'" << algorithm << "', " << count << " of " << to_string(type) << ", " << to_string(op)
        << ", " << group.size() << " members, in place " << is_in_place;
  }
  sync(fabric, "all are done with '" + algorithm + "'");
}

TEST_P(GpuPartialTest, HasTheBitsOfHostMemory) {
  run(4, [](Fabric& fabric) {
    for (const char* const algorithm : {"", "ring", "halving-doubling"})
      compare_with_host(fabric, algorithm);
  });
}

// A static schedule, so that the groups are the same in both runs.
TEST_P(GpuPartialTest, GroupAveragesHaveTheBitsOfHostMemory) {
  run(4, [](Fabric& fabric) {
    constexpr std::size_t kCount = 3001;
    const auto make = [&](std::optional<int> gpu) {
      GroupAverageOptions options;
      options.name = gpu ? "gpu" : "host";
      options.count = kCount;
      options.source = GroupSource::kStatic;
      options.groups.layout = {2, 2};
      options.partial = options_of("", gpu);
      return GroupAverage::create(fabric, options).value();
    };
    const auto host = make(std::nullopt);
    const auto gpu = make(0);
    std::vector<std::byte> first(kCount * sizeof(float));
    std::mt19937_64 own(static_cast<std::uint64_t>(fabric.rank().value()));
    std::vector<float> values(kCount);
    for (float& value : values) value = std::uniform_real_distribution<float>(-1, 1)(own);
    std::memcpy(first.data(), values.data(), first.size());
    std::ranges::copy(values, host->model().begin());
    write(reinterpret_cast<std::byte*>(gpu->model().data()), first);
    for (std::uint64_t iteration = 0; iteration < 12; ++iteration) {
      for (GroupAverage* const average : {host.get(), gpu.get()}) {
        const Status status = average->run(iteration);
        ASSERT_TRUE(status.is_ok()) << status.to_string();
      }
      const auto wanted = std::as_bytes(host->model());
      ASSERT_EQ(read(reinterpret_cast<const std::byte*>(gpu->model().data()), wanted.size()),
                std::vector(wanted.begin(), wanted.end()))
          << iteration;
    }
    EXPECT_GT(gpu->statistics().groups, 0u);
    sync(fabric, "all are done");
  });
}

// Groups that the service makes. The sum of all models stays what it was.
TEST_P(GpuPartialTest, GroupsOfTheServiceKeepTheSum) {
  run(3, [](Fabric& fabric) {
    GroupAverageOptions options;
    options.count = 500;
    options.source = GroupSource::kRandom;
    options.groups.layout = {3, 1};
    options.partial = options_of("", 0);
    const auto average = GroupAverage::create(fabric, options).value();
    const auto model = [&] { return reinterpret_cast<std::byte*>(average->model().data()); };
    const std::vector<float> start(options.count, static_cast<float>(fabric.rank().value()));
    const auto bytes = std::as_bytes(std::span(start));
    write(model(), {bytes.begin(), bytes.end()});
    for (std::uint64_t iteration = 0; iteration < 30; ++iteration) {
      const Status status = average->run(iteration);
      ASSERT_TRUE(status.is_ok()) << status.to_string();
    }
    ASSERT_TRUE(average->finish(std::chrono::seconds(60) * timeout_factor()).is_ok());
    const auto key = [](int rank) { return fmt::format("model of {}", rank); };
    const std::vector<std::byte> own = read(model(), bytes.size());
    ASSERT_TRUE(fabric.bootstrap().publish(key(fabric.rank().value()), own).is_ok());
    float sum = 0;
    for (int rank = 0; rank < fabric.size(); ++rank) {
      const Bytes theirs = fabric.bootstrap().lookup(key(rank), fabric.config().deadline).value();
      float value = 0;
      std::memcpy(&value, theirs.data() + theirs.size() - sizeof value, sizeof value);
      sum += value;
    }
    EXPECT_NEAR(sum, 3, 1e-4);
    EXPECT_GT(average->statistics().groups, 0u);
    sync(fabric, "all are done");
  });
}

// The model survives the failed averages, which move it to other memory of the GPU.
TEST(GpuPartialDeath, CostsGroupsAndNoModel) {
  const RankBody body = [](Fabric& fabric) {
    GroupAverageOptions options;
    options.count = 3000;
    options.source = GroupSource::kRandom;
    options.groups.layout = {3, 1};
    options.partial = options_of("", 0);
    const auto average = GroupAverage::create(fabric, options).value();
    const auto model = [&] { return reinterpret_cast<std::byte*>(average->model().data()); };
    const std::vector<float> start(options.count, static_cast<float>(fabric.rank().value()));
    const auto bytes = std::as_bytes(std::span(start));
    write(model(), {bytes.begin(), bytes.end()});
    for (std::uint64_t iteration = 0; iteration < 40; ++iteration) {
      if (fabric.rank() == Rank(2) && iteration == 8) {
        ASSERT_TRUE(average->start(iteration).is_ok());
        kill(getpid(), SIGKILL);
      }
      const Status status = average->run(iteration);
      ASSERT_TRUE(status.is_ok()) << status.to_string();
    }
    ASSERT_TRUE(average->finish(std::chrono::seconds(60) * timeout_factor()).is_ok());
    const std::vector<std::byte> found = read(model(), bytes.size());
    std::vector<float> values(options.count);
    std::memcpy(values.data(), found.data(), found.size());
    EXPECT_EQ(values, std::vector<float>(options.count, values[0]));
    EXPECT_GE(values[0], 0);
    EXPECT_LE(values[0], 2);
    EXPECT_GT(average->statistics().groups, 0u);
  };
  run_gpu_ranks(kFake, PeerKind::kProcesses, 3, body, {2});
}

TEST_P(GpuPartialTest, MembersWithAndWithoutAGpuDoNotMix) {
  run(2, [](Fabric& fabric) {
    const bool has_gpu = fabric.rank() == Rank(1);
    const auto partial =
        make_partial(fabric, options_of("mixed", has_gpu ? std::optional(0) : std::nullopt));
    const auto memory = partial->allocate(400).value();
    const std::span<float> model(reinterpret_cast<float*>(memory.data()), 100);
    const Status status = partial->run(call_on(1, ranks({0, 1}), model));
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find(has_gpu ? "the memory of the peer is host memory"
                                            : "the memory of the peer is GPU memory"),
              std::string::npos)
        << status.to_string();
    sync(fabric, "done");
  });
}

// The launch fails: the operation is an error on this rank, which the other one hears of. Both go
// on in fresh memory.
TEST_P(GpuPartialTest, AFailedLaunchAbortsTheOperation) {
  if (kFake == nullptr) GTEST_SKIP() << "sets the stand-in up";
  if (GetParam() == PeerKind::kThreads) GTEST_SKIP() << "the threads have one stand-in";
  run(2, [](Fabric& fabric) {
    constexpr std::size_t kCount = 5000;
    const auto partial = make_partial(fabric, options_of("failing", 0));
    const auto model = partial->allocate(kCount * sizeof(float)).value();
    const auto result = partial->allocate(kCount * sizeof(float)).value();
    const std::vector<float> start(kCount, static_cast<float>(fabric.rank().value()));
    const auto bytes = std::as_bytes(std::span(start));
    write(model.data(), {bytes.begin(), bytes.end()});
    PartialCall call{.number = 1, .members = ranks({0, 1}), .input = model.data()};
    call.output = result.data();
    call.count = kCount;
    if (fabric.rank() == Rank(1)) {
      kFake->failing_name = "cuLaunchKernel";
      kFake->failing_code = 719;
      kFake->failing_call = 1;
    }
    const Status status = partial->run(call);
    if (fabric.rank() == Rank(1)) {
      EXPECT_EQ(status.code(), Code::kIoError) << status.to_string();
      EXPECT_NE(status.message().find("a reduction on a GPU: cuLaunchKernel"), std::string::npos)
          << status.to_string();
    } else if (!status.is_ok()) {  // it may have got all that it needs
      EXPECT_EQ(status.code(), Code::kIoError) << status.to_string();
      EXPECT_EQ(status.peer(), Rank(1)) << status.to_string();
    }
    const auto fresh = partial->allocate(kCount * sizeof(float)).value();
    EXPECT_TRUE(partial->copy(fresh, model).is_ok());
    EXPECT_TRUE(partial->free(model).is_ok());
    EXPECT_TRUE(partial->free(result).is_ok());
    call.number = 2;
    call.input = call.output = fresh.data();
    const Status next = partial->run(call);
    EXPECT_TRUE(next.is_ok()) << next.to_string();
    const std::vector<float> expected(kCount, 0.5F);
    const auto wanted = std::as_bytes(std::span(expected));
    EXPECT_EQ(read(fresh.data(), wanted.size()), std::vector(wanted.begin(), wanted.end()));
    sync(fabric, "done");
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, GpuPartialTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

class GpuPartial : public ::testing::Test {
 protected:
  static void run(const RankBody& body) { run_gpu_ranks(kFake, PeerKind::kThreads, 1, body); }
};

TEST_F(GpuPartial, RefusesOtherMemory) {
  run([](Fabric& fabric) {
    const auto partial = make_partial(fabric, options_of("refusing", 0));
    const auto memory = partial->allocate(400).value();
    std::vector<float> host(100);
    PartialCall call = call_on(1, ranks({0}), std::span(host));
    const Status status = partial->start(call).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("it takes memory from allocate() only"), std::string::npos)
        << status.to_string();
    call.output = memory.data();
    EXPECT_EQ(partial->start(call).status().code(), Code::kInvalidArgument);
    call.input = memory.data();
    EXPECT_TRUE(partial->run(call).is_ok());
  });
}

TEST_F(GpuPartial, AMissingGpuIsAnError) {
  run([](Fabric& fabric) {
    const Status status = PartialAllReduce::create(fabric, options_of("none", 99)).status();
    EXPECT_EQ(status.code(), Code::kOutOfRange) << status.to_string();
  });
}

// The memory of an operation that is over has no work on it any more.
TEST_F(GpuPartial, AnAbortWaitsForTheGpu) {
  if (kFake == nullptr) GTEST_SKIP() << "sets the stand-in up";
  run([](Fabric& fabric) {
    const auto partial = make_partial(fabric, options_of("aborted", 0));
    const auto memory = partial->allocate(800).value();
    PartialCall call{.number = 1, .members = ranks({0}), .input = memory.data()};
    call.output = memory.data() + 400;
    call.count = 100;
    kFake->hold();
    const PartialRequest request = partial->start(call).value();
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(partial->test(request).is_busy());
    std::thread releaser([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      kFake->release();
    });
    EXPECT_EQ(partial->wait(request, Duration::zero()).code(), Code::kDeadlineExceeded);
    EXPECT_EQ(kFake->launches, 1u);
    releaser.join();
    call.number = 2;
    EXPECT_TRUE(partial->run(call).is_ok());
    EXPECT_EQ(kFake->launches, 2u);
  });
}

}  // namespace
}  // namespace dunlin::testing
