// The training methods on models in the memory of a GPU, over shm, on a GPU or on the stand-in for
// its driver: the models have the bits of those in host memory, where these do not depend on which
// rank comes first, and no step copies anything to or from host memory.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "runtime/gpu/cuda_driver.h"
#include "tests/collectives/training_support.h"
#include "tests/support/gpu.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using training::MethodKind;
using training::MethodOptions;
using training::Synchronizer;
using transport::Fabric;

// Null on a GPU. Ranks that are processes have a stand-in each.
FakeCuda* const kFake = use_gpu_library();

constexpr std::uint64_t kIterations = 30;

MethodOptions options_of(MethodKind kind) {
  MethodOptions options;
  options.kind = kind;
  options.count = LeastSquares::kUnknowns;
  options.piece_elements = 5;
  options.sgd = {.momentum = 0.5F, .weight_decay = 1e-3F};
  options.section_length = kind == MethodKind::kLocalSgd ? 3 : 1;
  options.groups = collective::GroupSource::kRandom;
  return options;
}

// Reads and writes the memory of a model.
class Memory {
 public:
  explicit Memory(bool is_on_gpu) {
    if (is_on_gpu) driver_ = load_cuda_driver().value();
  }
  void write(std::span<float> to, const std::vector<float>& from) const {
    if (driver_ == nullptr) {
      std::ranges::copy(from, to.begin());
    } else {
      copy_and_await(*driver_, [&](GpuStream& stream) {
        return stream.copy_to_device(to.data(), from.data(), to.size_bytes());
      });
    }
  }
  std::vector<float> read(std::span<const float> from) const {
    std::vector<float> found(from.size());
    if (driver_ == nullptr) {
      std::ranges::copy(from, found.begin());
    } else {
      copy_and_await(*driver_, [&](GpuStream& stream) {
        return stream.copy_to_host(found.data(), from.data(), from.size_bytes());
      });
    }
    return found;
  }

 private:
  std::shared_ptr<GpuDriver> driver_;
};

// Trains, and returns the model. `copies`: how often anything was copied to or from host memory,
// beyond the copies of this function.
std::vector<float> train(Fabric& fabric, const MethodOptions& options, std::uint64_t* copies) {
  const int rank = fabric.rank().value();
  const LeastSquares problem(fabric.size());
  const Memory memory(options.gpu.has_value());
  auto created = Synchronizer::create(fabric, options, std::chrono::seconds(60) * timeout_factor());
  EXPECT_TRUE(created.is_ok()) << created.status().to_string();
  if (!created) return {};
  Synchronizer& synchronizer = **created;
  memory.write(synchronizer.parameters(), std::vector<float>(options.count));
  const std::uint64_t before = kFake != nullptr ? kFake->host_copies.load() : 0;
  std::vector<float> gradient(options.count);
  for (std::uint64_t t = 0; t < kIterations; ++t) {
    EXPECT_TRUE(synchronizer.begin(t).is_ok());
    problem.gradient(rank, memory.read(synchronizer.parameters()), gradient);
    memory.write(synchronizer.gradient(), gradient);
    for (std::size_t first = options.count; first > 0; first -= 8)
      EXPECT_TRUE(synchronizer.ready(first - 8, 8).is_ok());
    const auto ended = synchronizer.finish(0.5F, t + 1 == kIterations);
    EXPECT_TRUE(ended.is_ok()) << ended.status().to_string();
    if (!ended) return {};
    if (*ended) break;
  }
  if (kFake != nullptr) *copies = kFake->host_copies - before;
  const Status left = synchronizer.leave();
  EXPECT_TRUE(left.is_ok()) << left.to_string();
  auto model = memory.read(synchronizer.parameters());
  EXPECT_EQ(memory.read(synchronizer.velocity()).size(), options.count);
  created->reset();
  sync(fabric, std::string("trained with ") + (options.gpu ? "GPUs" : "hosts"));
  return model;
}

class GpuTrainingTest : public ::testing::TestWithParam<PeerKind> {
 protected:
  static void compare_with_host(MethodKind kind, int ranks) {
    run_gpu_ranks(kFake, GetParam(), ranks, [kind](Fabric& fabric) {
      MethodOptions options = options_of(kind);
      options.name = "host";
      std::uint64_t copies = 0;
      const std::vector<float> on_host = train(fabric, options, &copies);
      options.name = "gpu";
      options.gpu = 0;
      if (kFake != nullptr) kFake->delay_us = 100;
      const std::vector<float> on_gpu = train(fabric, options, &copies);
      if (kind == MethodKind::kPartial) {
        // Who averages when depends on who comes first. No rank finds the solution alone.
        EXPECT_LT(LeastSquares::error(on_gpu), 0.1);
      } else {
        EXPECT_EQ(on_gpu, on_host) << to_string(kind);
      }
      // A gradient up and parameters down, by this test.
      if (kFake != nullptr && GetParam() == PeerKind::kProcesses) {
        EXPECT_EQ(copies, 2 * kIterations) << to_string(kind);
      }
    });
  }
};

TEST_P(GpuTrainingTest, AllReduceHasTheBitsOfHostMemory) {
  for (const int ranks : {1, 2, 3}) compare_with_host(MethodKind::kAllReduce, ranks);
}

TEST_P(GpuTrainingTest, LocalSgdHasTheBitsOfHostMemory) {
  compare_with_host(MethodKind::kLocalSgd, 3);
}

TEST_P(GpuTrainingTest, NotifyAckHasTheBitsOfHostMemory) {
  for (const int ranks : {1, 3}) compare_with_host(MethodKind::kStochastic, ranks);
}

TEST_P(GpuTrainingTest, PartialFindsTheSolution) {
  compare_with_host(MethodKind::kPartial, 2);
}

TEST_P(GpuTrainingTest, WhatNeedsHostMemorySaysSo) {
  run_gpu_ranks(kFake, GetParam(), 2, [](Fabric& fabric) {
    const auto refused = [&](MethodKind kind, const char* why) {
      MethodOptions options = options_of(kind);
      options.gpu = 0;
      options.sync = collective::SyncMode::kBsp;
      options.groups = collective::GroupSource::kStatic;
      const Status status = training::prepare_method(fabric, options).status();
      EXPECT_EQ(status.code(), Code::kInvalidArgument);
      EXPECT_NE(status.message().find(why), std::string::npos) << status.to_string();
    };
    refused(MethodKind::kParameterServer, "models on GPUs are not supported");
    refused(MethodKind::kAsyncParameterServer, "models on GPUs are not supported");
    refused(MethodKind::kAdPsgd, "models on GPUs are not supported");
    refused(MethodKind::kStragglerRing, "models on GPUs are not supported");
    refused(MethodKind::kStochastic, "bsp needs models in host memory");
    refused(MethodKind::kPartial, "static groups need models in host memory");
    sync(fabric, "refused");
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, GpuTrainingTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

}  // namespace
}  // namespace dunlin::testing
