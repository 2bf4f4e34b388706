// Collectives on the memory of a GPU, over shm, on a GPU or on the stand-in for its driver: every
// algorithm has the bits that it has on host memory.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "collectives/communicator/communicator.h"
#include "runtime/gpu/cuda_driver.h"
#include "tests/collectives/reduce_operands.h"
#include "tests/support/gpu.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::Algorithm;
using collective::Call;
using collective::Collective;
using collective::Communicator;
using collective::CommunicatorOptions;
using collective::DataType;
using collective::Problem;
using collective::ReduceOp;
using transport::Fabric;

constexpr int kSize = 3;
// Elements of each rank's part.
constexpr std::size_t kCounts[] = {1, 7, 1003, 20000};
constexpr std::size_t kLongest = kSize * 20000;
constexpr std::size_t kBytes = kLongest * sizeof(float);

// Null on a GPU. Ranks that are processes have a stand-in each.
FakeCuda* const kFake = use_gpu_library();

// A member with memory of one kind, and the bytes of that memory.
class Member {
 public:
  Member(Fabric& fabric, const std::string& name, std::optional<int> gpu)
      : driver_(gpu ? load_cuda_driver().value() : nullptr) {
    CommunicatorOptions options;
    options.name = name;
    options.scratch_bytes = 1 << 20;
    options.segment_bytes = 16 << 10;
    options.gpu = gpu;
    communicator_ = Communicator::create(fabric, options).value();
    input_ = communicator_->allocate(kBytes).value().data();
    output_ = communicator_->allocate(kBytes).value().data();
  }
  Communicator& communicator() { return *communicator_; }
  std::byte* input() { return input_; }
  std::byte* output() { return output_; }

  void write(std::byte* to, const std::vector<std::byte>& bytes) {
    move([&](GpuStream& stream) { return stream.copy_to_device(to, bytes.data(), bytes.size()); },
         [&] { std::copy(bytes.begin(), bytes.end(), to); });
  }
  std::vector<std::byte> read(const std::byte* from, std::size_t size) {
    std::vector<std::byte> bytes(size);
    move([&](GpuStream& stream) { return stream.copy_to_host(bytes.data(), from, size); },
         [&] { std::copy(from, from + size, bytes.begin()); });
    return bytes;
  }

 private:
  template <typename OnGpu, typename OnHost>
  void move(OnGpu&& on_gpu, OnHost&& on_host) {
    if (driver_ == nullptr) return on_host();
    copy_and_await(*driver_, on_gpu);
  }

  std::shared_ptr<GpuDriver> driver_;
  std::unique_ptr<Communicator> communicator_;
  std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
};

class GpuCollective : public ::testing::TestWithParam<PeerKind> {
 protected:
  static void run(const RankBody& body) { run_gpu_ranks(kFake, GetParam(), kSize, body); }
};

TEST_P(GpuCollective, EveryAlgorithmHasTheBitsOfHostMemory) {
  run([](Fabric& fabric) {
    Member host(fabric, "host", std::nullopt);
    Member gpu(fabric, "gpu", 0);
    ASSERT_TRUE(gpu.communicator().is_all_mapped());
    if (kFake != nullptr) kFake->delay_us = 200;
    std::mt19937_64 random(static_cast<std::uint64_t>(fabric.rank().value()));
    std::size_t number = 0;
    for (const Algorithm& algorithm : collective::algorithms()) {
      for (const std::size_t count : kCounts) {
        ++number;
        const DataType type = number % 3 == 0 ? DataType::kBfloat16 : DataType::kFloat32;
        const ReduceOp op = number % 2 == 0 ? ReduceOp::kAverage : ReduceOp::kMax;
        const Problem problem{algorithm.collective, kSize, count, 1};
        const std::size_t element = size_of(type);
        std::vector<std::byte> input(problem.input_count() * element);
        collective::reference::fill_operands(type, random, input.data(), problem.input_count());
        const std::vector<std::byte> nothing(problem.output_count() * element, std::byte{0x77});
        std::array<std::vector<std::byte>, 2> results;
        for (Member* const member : {&host, &gpu}) {
          if (!input.empty()) member->write(member->input(), input);
          if (!nothing.empty()) member->write(member->output(), nothing);
          // Nobody writes to a member that still prepares its memory.
          ASSERT_TRUE(member->communicator().barrier().is_ok());
          const Call call{algorithm.collective, member->input(), member->output(), count,
                          {type, op},           problem.root,    algorithm.name};
          const Status status = member->communicator().run(call);
          ASSERT_TRUE(status.is_ok()) << algorithm.name << ": " << status.to_string();
          if (!nothing.empty())
            results[member == &gpu] = member->read(member->output(), nothing.size());
        }
        EXPECT_EQ(results[0], results[1])
            << to_string(algorithm.collective) << " '" << algorithm.name << "', " << count << " of "
            << to_string(type) << ", " << to_string(op);
      }
    }
    ASSERT_TRUE(gpu.communicator().barrier().is_ok());
  });
}

// Kernels of a GPU do not access the memory of another one: the data are copied instead.
TEST_P(GpuCollective, MembersOfTwoGpus) {
  run([](Fabric& fabric) {
    const auto driver = load_cuda_driver().value();
    if (driver->devices().size() < 2) GTEST_SKIP() << "needs two GPUs";
    Member gpu(fabric, "gpus", fabric.rank().value() % 2);
    EXPECT_FALSE(gpu.communicator().is_all_mapped());
    constexpr std::size_t kCount = 5000;
    std::vector<float> values(kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      values[i] = static_cast<float>(i % 91) + static_cast<float>(fabric.rank().value());
    std::vector<std::byte> bytes(kCount * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    gpu.write(gpu.input(), bytes);
    ASSERT_TRUE(gpu.communicator().barrier().is_ok());
    const Status status = gpu.communicator().all_reduce(gpu.input(), gpu.output(), kCount,
                                                        {DataType::kFloat32, ReduceOp::kSum});
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    const std::vector<std::byte> result = gpu.read(gpu.output(), bytes.size());
    std::memcpy(values.data(), result.data(), result.size());
    for (std::size_t i = 0; i < kCount; ++i)
      ASSERT_EQ(values[i], 3 * static_cast<float>(i % 91) + 3) << i;
    ASSERT_TRUE(gpu.communicator().barrier().is_ok());
  });
}

TEST_P(GpuCollective, SeveralCallsAreInProgressAtATime) {
  run([](Fabric& fabric) {
    constexpr std::size_t kCalls = 6;
    constexpr std::size_t kCount = 5000;
    Member gpu(fabric, "gpu", 0);
    if (kFake != nullptr) kFake->delay_us = 500;
    std::vector<float> values(kCalls * kCount);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i % 91) + static_cast<float>(fabric.rank().value());
    std::vector<std::byte> bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    gpu.write(gpu.input(), bytes);
    ASSERT_TRUE(gpu.communicator().barrier().is_ok());
    std::vector<collective::CollectiveRequest> requests;
    for (std::size_t i = 0; i < kCalls; ++i) {
      std::byte* const at = gpu.input() + i * kCount * sizeof(float);
      requests.push_back(
          gpu.communicator()
              .start({Collective::kAllReduce, at, at, kCount, {DataType::kFloat32, ReduceOp::kSum}})
              .value());
    }
    for (const auto& request : requests) {
      const Status status = gpu.communicator().wait(request, std::chrono::seconds(60));
      ASSERT_TRUE(status.is_ok()) << status.to_string();
    }
    const std::vector<std::byte> result = gpu.read(gpu.input(), bytes.size());
    std::memcpy(values.data(), result.data(), result.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], 3 * static_cast<float>(i % 91) + 3) << i;
    ASSERT_TRUE(gpu.communicator().barrier().is_ok());
  });
}

// Only the root has an output in a reduce. Inputs may be anywhere, and so may those of a broadcast.
TEST_P(GpuCollective, MemoryOfRootedCalls) {
  run([](Fabric& fabric) {
    constexpr std::size_t kCount = 1000;
    constexpr collective::Reduction kSum{DataType::kFloat32, ReduceOp::kSum};
    constexpr int kRoot = 1;
    const bool is_root = fabric.rank() == Rank(kRoot);
    Member gpu(fabric, "gpu", 0);
    std::byte* const input =
        gpu.input() + static_cast<std::size_t>(fabric.rank().value()) * kCount * sizeof(float);
    const std::vector<float> ours(kCount, static_cast<float>(1 << fabric.rank().value()));
    std::vector<std::byte> bytes(kCount * sizeof(float));
    std::memcpy(bytes.data(), ours.data(), bytes.size());
    gpu.write(input, bytes);
    ASSERT_TRUE(gpu.communicator().barrier().is_ok());
    const auto first_of = [&](const std::byte* from) {
      float value = 0;
      std::memcpy(&value, gpu.read(from, sizeof value).data(), sizeof value);
      return value;
    };
    Status status =
        gpu.communicator().reduce(input, is_root ? gpu.output() : nullptr, kCount, kSum, kRoot);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    if (is_root) {
      EXPECT_EQ(first_of(gpu.output()), 7);
    }
    status =
        gpu.communicator().run({Collective::kBroadcast, input, gpu.output(), kCount, kSum, kRoot});
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_EQ(first_of(gpu.output()), 2);
    ASSERT_TRUE(gpu.communicator().barrier().is_ok());
  });
}

TEST_P(GpuCollective, OtherMemoryIsRefused) {
  run([](Fabric& fabric) {
    Member gpu(fabric, "gpu", 0);
    std::vector<float> own(100);
    const Status status = gpu.communicator().all_reduce(own.data(), own.data(), own.size(), {});
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("takes memory from allocate() only"), std::string::npos)
        << status.to_string();
    sync(fabric, "done");
  });
}

TEST_P(GpuCollective, MembersWithAndWithoutAGpuDoNotMix) {
  run([](Fabric& fabric) {
    CommunicatorOptions options;
    options.scratch_bytes = 1 << 20;
    if (fabric.rank() == Rank(1)) options.gpu = 0;
    const Status status = Communicator::create(fabric, options).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    sync(fabric, "done");
  });
}

// A launch that fails ends the call with an error on this member.
TEST_P(GpuCollective, AFailedLaunchIsAnError) {
  if (kFake == nullptr) GTEST_SKIP() << "sets the stand-in up";
  if (GetParam() == PeerKind::kThreads) GTEST_SKIP() << "the threads have one stand-in";
  // The rank that works for all, as they share a GPU.
  run([](Fabric& fabric) {
    Member gpu(fabric, "gpu", 0);
    ASSERT_TRUE(gpu.communicator().barrier().is_ok());
    if (fabric.rank() == Rank(0)) {
      kFake->failing_name = "cuLaunchKernel";
      kFake->failing_code = 719;
      kFake->failing_call = 1;
    }
    auto request = gpu.communicator().start(
        {Collective::kAllReduce, gpu.input(), gpu.output(), 1000, {}, 0, "shared"});
    Status status = request.status();
    const auto wait = [&](Duration timeout) {
      if (request) status = gpu.communicator().wait(*request, timeout);
    };
    // Rank 0 launches when all have arrived. The others look at their calls when that has failed.
    if (fabric.rank() == Rank(0)) wait(std::chrono::seconds(60) * timeout_factor());
    sync(fabric, "failed");
    if (fabric.rank() != Rank(0)) wait(std::chrono::milliseconds(300));
    if (fabric.rank() == Rank(0)) {
      EXPECT_EQ(status.code(), Code::kIoError) << status.to_string();
      EXPECT_NE(status.message().find("cuLaunchKernel"), std::string::npos) << status.to_string();
    } else {
      EXPECT_FALSE(status.is_ok());
    }
    sync(fabric, "done");
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, GpuCollective,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& each) { return to_string(each.param); });

}  // namespace
}  // namespace dunlin::testing
