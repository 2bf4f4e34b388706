// GpuNetwork, on a GPU or on the stand-in for its driver: a GPU computes what the stand-in's build
// of the same kernels computes; errors come back and leave nothing behind; and a step copies
// nothing between host and GPU but the batch and its outcome.
#include <gtest/gtest.h>

#include "collectives/training/synchronizer.h"
#include "runtime/gpu/cuda_driver.h"
#include "tests/apps/cnn_gpu_support.h"
#include "tests/support/gpu.h"

namespace dunlin::cnn {
namespace {

using dunlin::testing::FakeCuda;
using testing::Bound;
using testing::Case;
using testing::Sample;

// Null on a GPU.
FakeCuda* const kFake = dunlin::testing::use_gpu_library();

const Network::Ready kIgnore = [](std::size_t, std::size_t) { return Status::ok(); };

class CnnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kFake != nullptr) kFake->reset();
    auto device = Device::open({.is_gpu = true, .number = 0}, 0);
    ASSERT_TRUE(device.is_ok()) << device.status().to_string();
    device_ = std::move(device).value();
  }
  static Bound bind(const Device& device, const Architecture& architecture) {
    auto network = make_gpu_network(architecture, device.driver(), *device.gpu());
    EXPECT_TRUE(network.is_ok()) << network.status().to_string();
    return {device, std::move(network).value()};
  }
  void compare_with_stand_in(const std::vector<Case>& cases) const {
    const auto driver =
        load_cuda_driver(dunlin::testing::built("tests/fake_cuda/libcuda.so.1")).value();
    const auto stand_in = Device::on_gpu(driver, 0).value();
    for (const Case& each : cases) {
      SCOPED_TRACE(each.name);
      Bound on_gpu = bind(*device_, each.architecture);
      Bound on_host = bind(*stand_in, each.architecture);
      testing::compare(on_gpu, on_host, each.batch_size, each.tolerance);
    }
  }

  std::unique_ptr<Device> device_;
};

TEST_F(CnnGpu, LayersAreThoseOfTheStandIn) {
  compare_with_stand_in(testing::layer_cases());
}

TEST_F(CnnGpu, NetworksAreThoseOfTheStandIn) {
  if (kFake != nullptr) GTEST_SKIP() << "needs a GPU to compare the stand-in with";
  compare_with_stand_in(testing::network_cases());
}

TEST_F(CnnGpu, TheSameComputationGivesTheSameBits) {
  const Architecture architecture = make_architecture(NetworkKind::kSmall, 3, 10, true);
  Sample sample(architecture, 8);
  std::vector<float> first;
  for (int time = 0; time < 2; ++time) {
    if (kFake != nullptr) kFake->delay_us = 50;
    Bound network = bind(*device_, architecture);
    ASSERT_TRUE(network->train(sample.batches().at(0), kIgnore).is_ok());
    if (time == 0) first = network.gradient();
    EXPECT_EQ(network.gradient(), first);
  }
}

TEST_F(CnnGpu, ErrorsComeBack) {
  const Architecture architecture = make_architecture(NetworkKind::kSmall, 3, 10, false);
  Sample sample(architecture, 4);
  Bound network = bind(*device_, architecture);
  int calls = 0;
  const auto refused = network->train(sample.batches().at(0), [&](auto, auto) {
    ++calls;
    return Status(Code::kPeerDead, "gone");
  });
  EXPECT_EQ(refused.status().code(), Code::kPeerDead);
  EXPECT_EQ(calls, 1);
  const std::vector<float> initial = network.parameters();
  std::vector<float> broken = initial;
  broken[0] = std::nanf("");
  network.write(broken);
  const auto count = [&](auto, auto) {
    ++calls;
    return Status::ok();
  };
  EXPECT_EQ(network->train(sample.batches().at(0), count).status().code(), Code::kOutOfRange);
  EXPECT_EQ(calls, 1) << "nothing is sent of what is no number";
  network.write(initial);
  EXPECT_TRUE(network->train(sample.batches().at(1), count).is_ok());
  sample.images().labels.assign(sample.images().count(), 10);
  const Status label = network->evaluate(sample.batches().at(0)).status();
  EXPECT_EQ(label.code(), Code::kInvalidArgument);
  EXPECT_NE(label.message().find("label 10"), std::string::npos) << label.to_string();
}

TEST_F(CnnGpu, EveryCallOfTheDriverMayFail) {
  if (kFake == nullptr) GTEST_SKIP() << "needs the stand-in for CUDA's driver";
  device_.reset();
  const Architecture architecture = make_architecture(NetworkKind::kSmall, 3, 10, true);
  Sample sample(architecture, 1);
  const auto run = [&]() -> Status {
    DUNLIN_ASSIGN(const auto device, Device::open({.is_gpu = true, .number = 0}, 0));
    DUNLIN_ASSIGN(const auto network, make_gpu_network(architecture, device->driver(), 0));
    DUNLIN_ASSIGN(const auto parameters, device->allocate(architecture.count));
    DUNLIN_ASSIGN(const auto gradient, device->allocate(architecture.count));
    DUNLIN_TRY(network->bind(parameters.elements(), gradient.elements()));
    return network->train(sample.batches().at(0), kIgnore).status();
  };
  for (const char* name :
       {"cuMemAlloc", "cuStreamCreate", "cuEventCreate", "cuModuleLoadData", "cuModuleGetFunction",
        "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuLaunchKernel", "cuEventRecord", "cuEventQuery",
        "cuStreamWaitEvent", "cuStreamQuery"}) {
    // The first, second, fourth, ... call of each function, as long as there are so many.
    int failures = 0;
    for (std::uint64_t call = 1; call < 64; call *= 2) {
      kFake->reset();
      kFake->failing_name = name;
      kFake->failing_code = 999;
      kFake->failing_call = call;
      const Status status = run();
      if (kFake->failing_call != 0) break;
      if (status.is_error()) {
        ++failures;
        EXPECT_NE(status.to_string().find(name), std::string::npos) << status.to_string();
      }
      dunlin::testing::expect_nothing_left(*kFake);
    }
    EXPECT_GT(failures, 0) << name;
  }
}

// Two ranks train with each method that takes GPUs.
TEST(CnnGpuTraining, AStepCopiesItsBatchAndItsOutcomeOnly) {
  using training::MethodKind;
  constexpr std::uint64_t kSteps = 4;
  for (const MethodKind kind : {MethodKind::kAllReduce, MethodKind::kLocalSgd,
                                MethodKind::kStochastic, MethodKind::kPartial}) {
    dunlin::testing::run_gpu_ranks(
        kFake, dunlin::testing::PeerKind::kProcesses, 2, [&](transport::Fabric& fabric) {
          GeneratorOptions generate;
          generate.count = 16;
          const Images images = cnn::generate(generate).value();
          Batches batches(images, normalization_of(images), {.size = 4}, 4);
          const auto device = Device::open({.is_gpu = true, .number = 0}, 0).value();
          const Architecture architecture = make_architecture(NetworkKind::kSmall, 3, 10, true);
          const auto network = make_gpu_network(architecture, device->driver(), 0).value();
          training::MethodOptions options;
          options.kind = kind;
          options.count = architecture.count;
          options.sgd.momentum = 0.9F;
          options.gpu = 0;
          auto sync = training::Synchronizer::create(fabric, options, std::chrono::seconds(60));
          ASSERT_TRUE(sync.is_ok()) << sync.status().to_string();
          std::vector<float> initial(architecture.count);
          initialize(architecture, 1, initial);
          ASSERT_TRUE(device->write((*sync)->parameters(), initial).is_ok());
          ASSERT_TRUE(network->bind((*sync)->parameters(), (*sync)->gradient()).is_ok());
          const std::uint64_t before = kFake != nullptr ? kFake->host_copies.load() : 0;
          for (std::uint64_t step = 0; step < kSteps; ++step) {
            ASSERT_TRUE((*sync)->begin(step).is_ok());
            const auto judgment = network->train(
                batches.at(step),
                [&](std::size_t first, std::size_t count) { return (*sync)->ready(first, count); });
            ASSERT_TRUE(judgment.is_ok()) << judgment.status().to_string();
            const auto ended = (*sync)->finish(0.01F, step + 1 == kSteps);
            ASSERT_TRUE(ended.is_ok()) << ended.status().to_string();
          }
          // Pixels and labels up, the outcome down.
          if (kFake != nullptr) {
            EXPECT_EQ(kFake->host_copies - before, 3 * kSteps) << to_string(kind);
          }
          const Status left = (*sync)->leave();
          EXPECT_TRUE(left.is_ok()) << left.to_string();
        });
  }
}

}  // namespace
}  // namespace dunlin::cnn
