// What the verbs transport holds for many peers, on a made-up device.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/transports/verbs_device.h"

namespace dunlin::testing {
namespace {

using transport::Fabric;

constexpr int kRanks = 12;
constexpr std::int64_t kDepth = 8;
// Of one completion queue: for four peers, and for all of them.
constexpr int kFirstSize = 4 * 2 * (kDepth + 8);
constexpr int kWholeSize = kRanks * 2 * (kDepth + 8);

class VerbsScaleTest : public VerbsDeviceTestBase {
 protected:
  VerbsScaleTest() {
    configure_ = [](Config& config) { config.verbs_queue_depth = kDepth; };
  }
  int largest_queue() const { return std::ranges::max(device_.queue_sizes()); }
};

TEST_F(VerbsScaleTest, CompletionQueuesGrowWithTheConnections) {
  make();
  run(
      [this](Fabric& fabric) {
        sync(fabric, "made");
        EXPECT_EQ(largest_queue(), kFirstSize);
        sync(fabric, "seen");
        connect_all(fabric, "all");
      },
      kRanks);
  // 12 peers' queue pairs have more completions than twice the first size.
  EXPECT_GT(largest_queue(), 2 * kFirstSize);
  EXPECT_FALSE(device_.has_overrun());
}

TEST_F(VerbsScaleTest, QueuesThatCannotGrowHaveRoomForAllPeers) {
  make({.can_resize = false});
  run(
      [this](Fabric& fabric) {
        sync(fabric, "made");
        EXPECT_EQ(largest_queue(), kWholeSize);
        connect_all(fabric, "all");
      },
      kRanks);
  EXPECT_EQ(largest_queue(), kWholeSize);
  EXPECT_FALSE(device_.has_overrun());
}

TEST_F(VerbsScaleTest, AQueueThatIsFullSaysWhatToDo) {
  for (const bool can_resize : {true, false}) {
    make({.can_resize = can_resize, .most_completions = kFirstSize});
    run(
        [](Fabric& fabric) {
          std::string refusal;
          for (int peer = 1; peer < kRanks && fabric.rank() == Rank(0); ++peer) {
            if (const auto link = fabric.link(Rank(peer)); !link)
              refusal = link.status().to_string();
          }
          EXPECT_EQ(refusal.find("DUNLIN_VERBS_QUEUE_DEPTH") != std::string::npos,
                    fabric.rank() == Rank(0))
              << refusal;
          sync(fabric, "done");
        },
        kRanks);
    EXPECT_EQ(largest_queue(), kFirstSize);
  }
}

}  // namespace
}  // namespace dunlin::testing
