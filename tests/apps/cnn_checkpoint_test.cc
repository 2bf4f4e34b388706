#include "apps/cnn/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/files.h"
#include "tests/support/temp_folder.h"

namespace dunlin::cnn {
namespace {

using testing::content_of;
using testing::written;

Checkpoint example() {
  Checkpoint checkpoint;
  checkpoint.rank = 1;
  checkpoint.ranks = 4;
  checkpoint.run = 1'700'000'000'000'000'001;
  checkpoint.iteration = 12345678901;
  checkpoint.settings = "small of 3 parameters";
  checkpoint.loss = 0.1;
  checkpoint.accuracy = 0.99;
  checkpoint.batches = 77;
  checkpoint.parameters = {1.5F, -0.0F, 1e-42F};
  checkpoint.velocity = {3, 4, -3e38F};
  checkpoint.statistics = {0.25F};
  return checkpoint;
}

TEST(CnnCheckpoint, ReadsBackWhatWasSaved) {
  const testing::TempFolder folder;
  const std::string path = folder.file("checkpoint");
  ASSERT_TRUE(save_checkpoint(path, example()).is_ok());
  EXPECT_EQ(load_checkpoint(path).value(), example());
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  EXPECT_EQ(content_of(path).substr(0, 20), std::string("DUNLCNN\n\3\0\0\0\1\0\0\0\4\0\0\0", 20));
}

TEST(CnnCheckpoint, EveryFlippedByteAndEveryTruncationIsNoticed) {
  const testing::TempFolder folder;
  const std::string path = folder.file("checkpoint");
  ASSERT_TRUE(save_checkpoint(path, example()).is_ok());
  const std::string good = content_of(path);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    const Status status = load_checkpoint(written(path, bad)).status();
    const bool is_version = i >= 8 && i < 12;
    EXPECT_EQ(status.code(), is_version ? Code::kUnavailable : Code::kCorrupted) << i;
    EXPECT_TRUE(status.message().starts_with(path + ": ")) << status.message();
    EXPECT_EQ(load_checkpoint(written(path, good.substr(0, i))).status().code(), Code::kCorrupted)
        << i;
  }
  EXPECT_EQ(load_checkpoint(written(path, good + "x")).status().code(), Code::kCorrupted);
  EXPECT_EQ(load_checkpoint(folder.file("absent")).status().code(), Code::kNotFound);
}

TEST(CnnCheckpoint, GoesOnOnlyWhereNothingHasChanged) {
  EXPECT_TRUE(check_resumable(example(), example()).is_ok());
  const auto refusal = [](auto change) {
    Checkpoint other = example();
    change(other);
    return std::string(check_resumable(example(), other).message());
  };
  EXPECT_EQ(refusal([](auto& one) { one.settings = "vgg-11"; }),
            "the checkpoint was made with settings small of 3 parameters, this run has vgg-11");
  EXPECT_NE(refusal([](auto& one) { one.parameters.pop_back(); }), "");
  EXPECT_NE(refusal([](auto& one) { one.velocity.clear(); }), "");
  EXPECT_NE(refusal([](auto& one) { one.statistics.clear(); }), "");
  // A run continues with these values, whatever they are.
  EXPECT_EQ(refusal([](auto& one) { one.iteration = one.batches = one.run = 0; }), "");
  // Any number of ranks can continue.
  EXPECT_EQ(refusal([](auto& one) { one.ranks = 5, one.rank = 0; }), "");
}

}  // namespace
}  // namespace dunlin::cnn
