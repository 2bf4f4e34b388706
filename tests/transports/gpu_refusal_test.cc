// Transports that cannot access GPU memory report that, and never dereference its addresses. A fake
// GPU's addresses crash a process that does.
#include <gtest/gtest.h>

#include "tests/support/fake_gpu.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using transport::Fabric;

constexpr std::size_t kSize = 4096;

class GpuRefusalTest : public ::testing::TestWithParam<const char*> {
 protected:
  static void run(const RankBody& body) {
    const std::string name = GetParam();
    run_ranks({.kind = PeerKind::kThreads,
               .size = 1,
               .killed = {},
               .configure = [=](Config& config) { config.transports = {name}; }},
              body);
  }
};

TEST_P(GpuRefusalTest, RegisteringNamesTheTransportAndTheKind) {
  run([](Fabric& fabric) {
    const auto gpu = std::make_shared<FakeGpu>();
    const Status status =
        fabric.register_memory(MemoryRegion::allocate_on_gpu(gpu, 0, kSize).value()).status();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    const std::string wanted = std::string(GetParam()) + " cannot access cuda memory";
    EXPECT_NE(status.message().find(wanted), std::string_view::npos) << status.to_string();
  });
}

// The region is as if another transport of the process had registered it.
TEST_P(GpuRefusalTest, OperationsOnALocalSliceAreRefused) {
  run([](Fabric& fabric) {
    Exposed host(fabric, "host", kSize, 1);
    const auto gpu = std::make_shared<FakeGpu>();
    std::vector<std::unique_ptr<transport::TransportRegion>> nobody(1);
    const transport::LocalRegion region(MemoryRegion::allocate_on_gpu(gpu, 0, kSize).value(),
                                        std::move(nobody));
    transport::Lane& lane = host.data(0);
    std::vector<Status> outcomes;
    outcomes.push_back(lane.put(region.whole(), host.at(0).whole(), nullptr));
    outcomes.push_back(lane.put_notify(region.whole(), host.at(0).whole(),
                                       notification(host.cell(0), 1), nullptr));
    if (lane.reads() != nullptr)
      outcomes.push_back(lane.reads()->get(host.at(0).whole(), region.whole(), nullptr));
    for (const Status& status : outcomes) {
      EXPECT_EQ(status.code(), Code::kUnavailable);
      const std::string wanted = std::string("cuda memory, which ") + GetParam() + " cannot access";
      EXPECT_NE(status.message().find(wanted), std::string_view::npos) << status.to_string();
    }
    EXPECT_EQ(fabric.board().sequence(host.cell(0)), 0u);
  });
}

#ifdef DUNLIN_HAVE_UCX
INSTANTIATE_TEST_SUITE_P(Transports, GpuRefusalTest, ::testing::Values("tcp", "ucx"));
#else
INSTANTIATE_TEST_SUITE_P(Transports, GpuRefusalTest, ::testing::Values("tcp"));
#endif

}  // namespace
}  // namespace dunlin::testing
