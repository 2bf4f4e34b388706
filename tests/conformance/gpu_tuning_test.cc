// The tuner on communicators of GPUs, over shm, on a GPU or on the stand-in for its driver.
#include <gtest/gtest.h>

#include <string>

#include "collectives/tuner/tuner.h"
#include "runtime/gpu/cuda_driver.h"
#include "tests/support/gpu.h"

namespace dunlin::testing {
namespace {

using collective::Collective;
using collective::Communicator;
using collective::CommunicatorOptions;
using transport::Fabric;

// Null on a GPU. Ranks that are processes have a stand-in each.
FakeCuda* const kFake = use_gpu_library();

class GpuTuningTest : public ::testing::TestWithParam<PeerKind> {};

std::unique_ptr<Communicator> on_gpus(Fabric& fabric) {
  CommunicatorOptions options;
  options.name = "gpus";
  options.gpu = 0;
  return Communicator::create(fabric, options).value();
}

TEST_P(GpuTuningTest, MeasuresAlikeOnAllRanksAndIsFollowed) {
  run_gpu_ranks(kFake, GetParam(), 3, [](Fabric& fabric) {
    const auto meeting = Communicator::create(fabric, {}).value();
    const auto gpus = on_gpus(fabric);
    collective::TunerOptions options;
    options.largest_bytes = 4096;
    options.factor = 32;
    options.time = std::chrono::milliseconds(1);
    options.meeting = meeting.get();
    auto tuning = collective::tune(*gpus, options);
    ASSERT_TRUE(tuning.is_ok()) << tuning.status().to_string();
    ASSERT_FALSE(tuning->choices.empty());
    EXPECT_EQ(tuning->links.size(), 1u);
    std::int64_t hash =
        static_cast<std::int64_t>(std::hash<std::string>()(collective::to_text(*tuning)) >> 1);
    std::int64_t highest = 0;
    ASSERT_TRUE(meeting
                    ->all_reduce(&hash, &highest, 1,
                                 {collective::DataType::kInt64, collective::ReduceOp::kMax})
                    .is_ok());
    EXPECT_EQ(hash, highest);

    for (auto& choice : tuning->choices) {
      if (choice.collective == Collective::kAllReduce) choice.algorithm = "tree";
    }
    gpus->use(*tuning);
    EXPECT_EQ(gpus->choose({Collective::kAllReduce, nullptr, nullptr, 8}).value()->name, "tree");
    sync(fabric, "tuned");
  });
}

TEST_P(GpuTuningTest, TuningsOfHostAndGpuMemoryAreApart) {
  run_gpu_ranks(kFake, GetParam(), 2, [](Fabric& fabric) {
    const auto host = Communicator::create(fabric, {}).value();
    const auto gpus = on_gpus(fabric);
    EXPECT_EQ(gpus->shape().processor, load_cuda_driver().value()->devices()[0].name);
    EXPECT_NE(gpus->shape().key(), host->shape().key());
    const Status status = collective::tune(*gpus, {}).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("takes one of host memory"), std::string::npos)
        << status.to_string();
    sync(fabric, "done");
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, GpuTuningTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

}  // namespace
}  // namespace dunlin::testing
