#include "apps/svm/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <string>
#include <vector>

#include "apps/svm/generator.h"
#include "tests/support/files.h"
#include "tests/support/temp_folder.h"

namespace dunlin::svm {
namespace {

using testing::content_of;
using testing::written;

Checkpoint example() {
  Checkpoint checkpoint;
  checkpoint.rank = 3;
  checkpoint.ranks = 8;
  checkpoint.run = 1'700'000'000'000'000'001;
  checkpoint.group_epoch = 2;
  checkpoint.iteration = 12345678901;
  checkpoint.shard_rows = 100;
  checkpoint.data.fill(std::byte{0xa5});
  checkpoint.options = {.loss = Loss::kLog,
                        .lambda = 1e-5,
                        .eta0 = 0.5,
                        .has_bias = false,
                        .seed = 77,
                        .shard = 3,
                        .t_step = 8};
  checkpoint.state = {.t = 1'000'000'007, .epoch = 9, .position = 42, .scale = 0.25};
  checkpoint.model = {1.5F, -0.0F, 1e-42F, -3e38F};
  return checkpoint;
}

Checkpoint averaged_example() {
  Checkpoint checkpoint = example();
  checkpoint.averaged = 17;
  checkpoint.average = {0.5F, 0, 1e-42F, 2};
  return checkpoint;
}

TEST(Checkpoint, ReadsBackWhatWasSaved) {
  const testing::TempFolder folder;
  const std::string path = folder.file("checkpoint");
  ASSERT_TRUE(save_checkpoint(path, example()).is_ok());
  EXPECT_EQ(load_checkpoint(path).value(), example());
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  ASSERT_TRUE(save_checkpoint(path, averaged_example()).is_ok());
  EXPECT_EQ(load_checkpoint(path).value(), averaged_example());
}

// The format is part of the contract: magic, version, element count, rank, little-endian.
TEST(Checkpoint, StartsWithItsMagicVersionAndCount) {
  const testing::TempFolder folder;
  const std::string path = folder.file("checkpoint");
  ASSERT_TRUE(save_checkpoint(path, example()).is_ok());
  const std::string head("DUNLSVM\n\4\0\0\0\4\0\0\0\0\0\0\0\3\0\0\0\10\0\0\0", 28);
  EXPECT_EQ(content_of(path).substr(0, 28), head);
}

TEST(Checkpoint, EveryFlippedByteIsNoticed) {
  const testing::TempFolder folder;
  const std::string path = folder.file("checkpoint");
  ASSERT_TRUE(save_checkpoint(path, averaged_example()).is_ok());
  const std::string good = content_of(path);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    const Status status = load_checkpoint(written(path, bad)).status();
    const bool is_version = i >= 8 && i < 12;
    EXPECT_EQ(status.code(), is_version ? Code::kUnavailable : Code::kCorrupted) << i;
    EXPECT_TRUE(status.message().starts_with(path + ": ")) << status.message();
  }
}

TEST(Checkpoint, EveryTruncationIsNoticed) {
  const testing::TempFolder folder;
  const std::string path = folder.file("checkpoint");
  ASSERT_TRUE(save_checkpoint(path, averaged_example()).is_ok());
  const std::string good = content_of(path);
  for (std::size_t length = 0; length < good.size(); ++length) {
    written(path, good.substr(0, length));
    EXPECT_EQ(load_checkpoint(path).status().message(), path + ": the checkpoint is cut short");
  }
  written(path, good + '\0');
  EXPECT_EQ(load_checkpoint(path).status().message(),
            path + ": the checkpoint has bytes behind its end");
}

TEST(Checkpoint, SaysWhatIsWrong) {
  const testing::TempFolder folder;
  const std::string path = folder.file("checkpoint");
  written(path, "+1 1:1\n");
  EXPECT_EQ(load_checkpoint(path).status().message(), path + ": is no checkpoint");
  ASSERT_TRUE(save_checkpoint(path, example()).is_ok());
  std::string bytes = content_of(path);
  bytes[8] = 7;
  written(path, bytes);
  EXPECT_EQ(load_checkpoint(path).status().message(),
            path + ": the checkpoint has format version 7; this program knows 4");
  EXPECT_EQ(load_checkpoint(path + ".absent").status().code(), Code::kNotFound);
}

TEST(Checkpoint, AFailedSaveLeavesTheOldOne) {
  const testing::TempFolder folder;
  const std::string path = folder.file("checkpoint");
  ASSERT_TRUE(save_checkpoint(path, example()).is_ok());
  Checkpoint next = example();
  ++next.iteration;
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
  const rlimit tiny{16, usual.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tiny), 0);
  const Status status = save_checkpoint(path, next);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &usual), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(status.is_error());
  EXPECT_EQ(load_checkpoint(path).value(), example());
  EXPECT_EQ(save_checkpoint(folder.file("absent/x"), next).code(), Code::kNotFound);
}

TEST(Checkpoint, FitsOnlyTheRunItWasMadeBy) {
  EXPECT_TRUE(check_resumable(example(), example()).is_ok());
  const auto difference = [](auto change) {
    Checkpoint current = example();
    change(current);
    return std::string(check_resumable(example(), current).message());
  };
  const std::string made = "the checkpoint was made with ";
  EXPECT_EQ(difference([](auto& c) { c.model.resize(9); }),
            made + "model elements 4, this run has 9");
  EXPECT_EQ(difference([](auto& c) { c.shard_rows = 7; }),
            made + "rows of the shard 100, this run has 7");
  EXPECT_EQ(difference([](auto& c) { c.data[0] = std::byte{1}; }),
            made +
                "data a5a5a5a5a5a5a5a5, this run has 01a5a5a5a5a5a5a5: the rank has other rows. Is "
                "it the same training set, and the same --shard-skew?");
  EXPECT_EQ(difference([](auto& c) { c.options.lambda = 1e-4; }),
            made + "lambda 1e-05, this run has 0.0001");
  EXPECT_EQ(difference([](auto& c) { c.options.loss = Loss::kHinge; }),
            made + "loss log, this run has hinge");
  EXPECT_EQ(difference([](auto& c) { c.options.seed = 1; }), made + "seed 77, this run has 1");
  EXPECT_EQ(difference([](auto& c) { c.options.eta0 = 8; }), made + "eta0 0.5, this run has 8");
  EXPECT_EQ(difference([](auto& c) { c.averaged = 3; }), made + "averaging off, this run has on");
  // Values that a resumed run takes over from the checkpoint may differ.
  EXPECT_EQ(difference([](auto& c) { c.options.eta0 = 0; }), "");
}

// The shards of another number of ranks are others.
TEST(Checkpoint, FitsARunOfAnotherNumberOfRanks) {
  const auto difference = [](auto change) {
    Checkpoint current = example();
    current.ranks = 4;
    current.rank = 1;
    current.options.shard = 1;
    current.shard_rows = 200;
    current.data.fill(std::byte{1});
    change(current);
    return std::string(check_resumable(example(), current).message());
  };
  EXPECT_EQ(difference([](auto&) {}), "");
  EXPECT_NE(difference([](auto& c) { c.model.resize(9); }), "");
  EXPECT_NE(difference([](auto& c) { c.options.lambda = 1e-4; }), "");
  EXPECT_NE(difference([](auto& c) { c.options.seed = 1; }), "");
  EXPECT_NE(difference([](auto& c) { c.averaged = 3; }), "");
}

TEST(Checkpoint, TellsDataSetsOfTheSameShapeApart) {
  const Dataset data = generate({.rows = 30, .features = 20, .nonzeros_per_row = 5}).value();
  EXPECT_EQ(digest_of(data), digest_of(Dataset(data)));
  Dataset other = data;
  other.values.back() += 1;
  EXPECT_NE(digest_of(data), digest_of(other));
  other = data;
  other.labels.front() = -other.labels.front();
  EXPECT_NE(digest_of(data), digest_of(other));
  other = data;
  other.features = 21;
  EXPECT_NE(digest_of(data), digest_of(other));
  // The same rows at other places.
  other = data;
  ++other.numbers.back();
  EXPECT_NE(digest_of(data), digest_of(other));
}

TEST(Checkpoint, TheDigestsOfAllShardsAddUpToThatOfTheSet) {
  const GeneratorOptions options{.rows = 31, .features = 20, .nonzeros_per_row = 5};
  const Digest whole = digest_of(generate(options).value());
  for (const std::uint32_t ranks : {2U, 3U, 7U}) {
    Digest sum{};
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const Shard shard{rank, ranks};
      sum = sum_of(sum, digest_of(generate(options, shard).value()));
    }
    EXPECT_EQ(sum, whole) << ranks;
  }
}

// Saves in the middle of a pass, before the weights have been materialized.
TEST(Checkpoint, AResumedRunIsTheSameBitForBit) {
  const testing::TempFolder folder;
  const Dataset data = generate({.rows = 300, .features = 200, .nonzeros_per_row = 10}).value();
  const LearnerOptions options{.eta0 = 1};
  std::vector<float> straight(data.features + 1);
  Learner whole = Learner::create(straight, data, options).value();
  whole.train(2 * data.rows());

  for (const std::uint64_t examples : {std::uint64_t{300}, std::uint64_t{421}}) {
    const std::string path = folder.file("checkpoint");
    {
      std::vector<float> model(data.features + 1);
      Learner first = Learner::create(model, data, options).value();
      first.train(examples);
      ASSERT_TRUE(save_checkpoint(path, {.shard_rows = data.rows(),
                                         .options = options,
                                         .state = first.state(),
                                         .model = model})
                      .is_ok());
    }
    Checkpoint loaded = load_checkpoint(path).value();
    Learner second = Learner::create(loaded.model, data, loaded.options).value();
    ASSERT_TRUE(second.restore(loaded.state).is_ok());
    second.train(2 * data.rows() - examples);
    EXPECT_EQ(loaded.model, straight);
    EXPECT_EQ(second.state(), whole.state());
  }
}

TEST(Checkpoint, ImpossibleStatesAreRefused) {
  const Dataset data = generate({.rows = 10, .features = 20, .nonzeros_per_row = 3}).value();
  std::vector<float> model(data.features + 1);
  Learner learner = Learner::create(model, data, {.eta0 = 1}).value();
  EXPECT_EQ(learner.restore({.position = 10}).message(), "row 10 of a pass over 10 rows");
  EXPECT_EQ(learner.restore({.scale = 0}).message(), "a weight scale of 0");
  EXPECT_TRUE(learner.restore({.position = 9, .scale = 0.5}).is_ok());
}

}  // namespace
}  // namespace dunlin::svm
