#include "apps/checkpoint_files.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/files.h"
#include "tests/support/temp_folder.h"

namespace dunlin {
namespace {

using testing::written;

TEST(CheckpointFiles, AreFoundByTheirNames) {
  const testing::TempFolder folder;
  const std::string base = folder.file("model");
  EXPECT_EQ(checkpoint_path(base, {3, 12, 400}), base + ".3-of-12.400");
  EXPECT_TRUE(checkpoint_names(base).empty());
  for (const char* name :
       {"model.1-of-2.30", "model.0-of-2.30", "model.0-of-11.0", "model.10-of-11.9",
        // The others are no checkpoints of this name.
        "model", "model.", "model.0", "model.0.30", "model.0-of-2", "model.0-of-2.",
        "model.2-of-2.30", "model.01-of-2.30", "model.0-of-02.30", "model.0-of-2.030",
        "model.-1-of-2.30", "model.0-of-2.30x", "model.0-of-2.30.partial",
        "model.0-of-2.99999999999999999999", "models.0-of-2.30",
        "model.5000000000-of-6000000000.1"}) {
    written(folder.file(name), "");
  }
  const std::vector<CheckpointName> expected = {{0, 2, 30}, {0, 11, 0}, {1, 2, 30}, {10, 11, 9}};
  EXPECT_EQ(checkpoint_names(base), expected);
  EXPECT_TRUE(checkpoint_names(folder.file("no/model")).empty());
}

TEST(CheckpointFiles, ARotationKeepsTheLastTwoOfItsRankAndNumberOfRanks) {
  const testing::TempFolder folder;
  const std::string base = folder.file("model");
  for (const CheckpointName& name :
       {CheckpointName{0, 2, 10}, {0, 2, 20}, {0, 2, 30}, {1, 2, 10}, {0, 3, 10}})
    written(checkpoint_path(base, name), "");
  CheckpointRotation rotation(base, 0, 2);
  for (const std::uint64_t iteration : {10, 20, 30}) {
    EXPECT_EQ(rotation.path(iteration), checkpoint_path(base, {0, 2, iteration}));
    rotation.note_saved(iteration);
  }
  const std::vector<CheckpointName> expected = {{0, 2, 20}, {0, 2, 30}, {0, 3, 10}, {1, 2, 10}};
  EXPECT_EQ(checkpoint_names(base), expected);
}

}  // namespace
}  // namespace dunlin
