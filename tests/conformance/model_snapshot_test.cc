// The model for a newcomer (collectives/elastic), over each transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "collectives/elastic/model_snapshot.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::ModelSnapshot;
using transport::Fabric;

constexpr auto kTimeout = std::chrono::seconds(30);

class ModelSnapshotTest : public OverPeers {};

// Several pieces, of which the last one is not whole.
TEST_P(ModelSnapshotTest, ANewcomerReadsTheModelAsItWasOffered) {
  run(2, [](Fabric& fabric) {
    std::vector<float> model((std::size_t{17} << 20) / sizeof(float) + 3);
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(model));
    if (fabric.rank() == Rank(0)) {
      std::iota(model.begin(), model.end(), 1.0F);
      const auto offer = ModelSnapshot::offer(fabric, "job/1", bytes, 42);
      ASSERT_TRUE(offer.is_ok()) << offer.status().to_string();
      std::fill(model.begin(), model.end(), 0.0F);  // the member goes on
      sync(fabric, "read");
    } else {
      const auto version =
          ModelSnapshot::fetch(fabric, "job/1", Rank(0), bytes, kTimeout * timeout_factor());
      ASSERT_TRUE(version.is_ok()) << version.status().to_string();
      EXPECT_EQ(*version, 42U);
      for (std::size_t i = 0; i < model.size(); ++i)
        ASSERT_EQ(model[i], static_cast<float>(i) + 1.0F) << i;
      sync(fabric, "read");
    }
  });
}

// The members that had it have died: nobody goes on with a model of its own.
TEST_P(ModelSnapshotTest, AModelThatNoMemberHasIsAnError) {
  run(2, [](Fabric& fabric) {
    std::vector<std::byte> model(100);
    const auto version = collective::share_model(fabric, "job/1", {Rank(0), Rank(1)}, true, model,
                                                 7, kTimeout * timeout_factor());
    EXPECT_EQ(version.status().code(), Code::kUnavailable) << version.status().to_string();
  });
}

TEST_P(ModelSnapshotTest, AModelOfAnotherSizeIsAnErrorThatSaysSo) {
  run(2, [](Fabric& fabric) {
    std::vector<std::byte> model(100);
    if (fabric.rank() == Rank(0)) {
      const auto offer = ModelSnapshot::offer(fabric, "job/1", model, 0);
      ASSERT_TRUE(offer.is_ok());
      sync(fabric, "read");
    } else {
      model.resize(99);
      const auto version = ModelSnapshot::fetch(fabric, "job/1", Rank(0), model, kTimeout);
      EXPECT_EQ(version.status().code(), Code::kInvalidArgument);
      EXPECT_THAT(version.status().to_string(), ::testing::HasSubstr("100 bytes"));
      const auto none =
          ModelSnapshot::fetch(fabric, "job/2", Rank(0), model, std::chrono::milliseconds(20));
      EXPECT_EQ(none.status().code(), Code::kDeadlineExceeded);
      sync(fabric, "read");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, ModelSnapshotTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

}  // namespace
}  // namespace dunlin::testing
