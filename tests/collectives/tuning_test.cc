// The file of tunings: writing, reading, lookup, damage.
#include "collectives/communicator/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace dunlin::collective {
namespace {

Tuning make_tuning(int size) {
  Tuning tuning;
  tuning.shape = {"a processor", size, 2, "shm", true};
  tuning.links = {{"hosts", 2e-6, 1e-10}};
  tuning.gamma = 5e-11;
  tuning.choices = {
      {Collective::kAllReduce, 64, "direct", {{"direct", 1e-6, 2e-6}, {"ring", 3e-5, {}}}},
      {Collective::kAllReduce, 65536, "ring", {{"ring", 4e-5, 5e-5}}},
      {Collective::kBroadcast, 64, "tree", {{"tree", 1e-6, 1e-6}}}};
  return tuning;
}

class TuningFile : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const std::string folder_ =
      ::testing::TempDir() + "dunlin-tuning-test-" + std::to_string(getpid());
  const std::string path_ = folder_ + "/deep/tuning.json";
};

TEST_F(TuningFile, KeepsOneTuningPerShape) {
  EXPECT_TRUE(read_tunings(path_).value().empty());
  ASSERT_TRUE(write_tuning(path_, make_tuning(4)).is_ok());
  ASSERT_TRUE(write_tuning(path_, make_tuning(8)).is_ok());
  Tuning newer = make_tuning(4);
  newer.choices[0].algorithm = "shared";
  ASSERT_TRUE(write_tuning(path_, newer).is_ok());
  const auto tunings = read_tunings(path_);
  ASSERT_TRUE(tunings.is_ok()) << tunings.status().to_string();
  ASSERT_EQ(tunings->size(), 2u);
  EXPECT_EQ(tunings->front().shape.size, 8);
  const Tuning& read = tunings->back();
  EXPECT_EQ(to_text(read), to_text(newer));
  EXPECT_EQ(read.choices[0].candidates[1].measured, std::nullopt);
  EXPECT_EQ(read.choices[0].candidates[0].measured, 2e-6);
}

TEST_F(TuningFile, SaysWhatIsWrongWithADamagedOne) {
  ASSERT_TRUE(write_tuning(path_, make_tuning(4)).is_ok());
  for (const char* const text : {"", "{", "[1, 2]", R"({"version": 1})",
                                 R"({"version": 1, "tunings": [{"processor": 7}]})"}) {
    std::ofstream(path_) << text;
    const auto read = read_tunings(path_);
    ASSERT_EQ(read.status().code(), Code::kCorrupted) << text;
    const std::string message(read.status().message());
    EXPECT_THAT(message, ::testing::HasSubstr(path_ + ": "));
    EXPECT_THAT(message, ::testing::Not(::testing::HasSubstr("json.exception")));
  }
  // A file of a later version holds no tunings.
  std::ofstream(path_) << R"({"version": 99, "whatever": []})";
  EXPECT_TRUE(read_tunings(path_).value().empty());
  EXPECT_EQ(parse_tuning("{}").status().code(), Code::kCorrupted);
}

TEST_F(TuningFile, CannotBeWrittenEverywhere) {
  EXPECT_FALSE(write_tuning("/proc/nowhere/tuning.json", make_tuning(2)).is_ok());
}

TEST(TuningLookup, TakesTheNearestSizeByRatio) {
  const Tuning tuning = make_tuning(4);
  const auto algorithm = [&](std::size_t bytes) {
    return tuning.find(Collective::kAllReduce, bytes)->algorithm;
  };
  EXPECT_EQ(algorithm(1), "direct");
  EXPECT_EQ(algorithm(2000), "direct");
  EXPECT_EQ(algorithm(2100), "ring");
  EXPECT_EQ(algorithm(1 << 30), "ring");
  EXPECT_EQ(tuning.find(Collective::kAllToAll, 64), nullptr);
}

}  // namespace
}  // namespace dunlin::collective
