// Fabrics that end while their processes go on: that is no death, however long a peer takes to
// notice.
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "tests/support/ranks.h"
#include "tests/support/scoped_bootstrap.h"

namespace dunlin::testing {
namespace {

using transport::Fabric;

class PartingTest : public ::testing::TestWithParam<PeerKind> {};

TEST_P(PartingTest, AFabricThatEndsWhileItsPeerIsStalledIsNoDeath) {
  run_ranks({.kind = GetParam(), .size = 2, .killed = {}, .configure = {}}, [](Fabric& lasting) {
    ScopedBootstrap bootstrap(lasting.bootstrap(), "short/");
    auto passing = Fabric::create(bootstrap, lasting.config(), lasting.clock());
    ASSERT_TRUE(passing.is_ok()) << passing.status().to_string();
    {
      Fabric& fabric = **passing;
      Exposed memory(fabric, "parting", 64, 2);
      const int other = 1 - fabric.rank().value();
      const auto hello = notification(memory.cell_at(other, 0), 1);
      ASSERT_TRUE(post(fabric, [&] { return memory.data(other).notify(hello, nullptr); }).is_ok());
      ASSERT_TRUE(await_cell(fabric, memory.cell(0), 1));
      sync(fabric, "greeted");
      if (fabric.rank() == Rank(1)) {
        // It is stalled for so long that the other end may be closed, and sends before it reads.
        std::this_thread::sleep_for(std::chrono::milliseconds(800));
        const auto late = notification(memory.cell_at(other, 1), 1);
        for (int i = 0; i < 3; ++i) (void)memory.data(other).notify(late, nullptr);
        const TimePoint end = fabric.clock().now() + std::chrono::milliseconds(500);
        while (fabric.clock().now() < end) fabric.progress();
      }
    }
    passing->reset();
    for (const Rank rank : {Rank(0), Rank(1)}) {
      EXPECT_EQ(lasting.peers().check(rank).to_string(), Status::ok().to_string());
    }
    // No rank leaves the job before all have checked.
    sync(lasting, "checked");
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, PartingTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

}  // namespace
}  // namespace dunlin::testing
