#include "apps/checkpoint_search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "tests/support/files.h"
#include "tests/support/temp_folder.h"

namespace dunlin {
namespace {

using testing::content_of;
using testing::written;

// A checkpoint of these tests has its state as text.
Result<SavedState> read(const std::string& path) {
  std::istringstream text(content_of(path));
  SavedState state;
  text >> state.name.rank >> state.name.ranks >> state.name.iteration >> state.run >> state.done;
  if (!text) return Status(Code::kCorrupted, path + ": is damaged");
  return state;
}

// Each host has a folder of its own.
class Checkpoints : public ::testing::Test {
 protected:
  std::string base(int host = 0) const { return folder_.file(fmt::format("host-{}/model", host)); }

  void SetUp() override {
    for (int host : {0, 1})
      std::filesystem::create_directory(folder_.path() / fmt::format("host-{}", host));
  }

  void save(const SavedState& state, int host = 0) const { save_as(state.name, state, host); }
  void save_as(const CheckpointName& name, const SavedState& state, int host = 0) const {
    written(checkpoint_path(base(host), name),
            fmt::format("{} {} {} {} {}", state.name.rank, state.name.ranks, state.name.iteration,
                        state.run, state.done));
  }
  void save_all(std::uint32_t ranks, std::uint64_t iteration, std::uint64_t run = 1) const {
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      save({{rank, ranks, iteration}, run, 100 * iteration + rank});
  }

  struct How {
    bool needs_same_iteration = true;
    int hosts = 1;              // rank r is on host r % hosts
    std::optional<int> dead{};  // a rank that is dead from the start
  };

  // What each rank finds.
  std::vector<Result<FoundCheckpoint>> find(int ranks, const How& how) const {
    InProcessJob job(ranks);
    std::vector<std::unique_ptr<Bootstrap>> bootstraps;
    CheckpointSearch search;
    search.topic = "test";
    search.ranks = static_cast<std::uint32_t>(ranks);
    search.needs_same_iteration = how.needs_same_iteration;
    search.timeout = std::chrono::minutes(10);
    for (int rank = 0; rank < ranks; ++rank) {
      bootstraps.push_back(job.bootstrap(Rank(rank)));
      if (rank != how.dead) search.members.emplace_back(rank);
    }
    std::vector<Result<FoundCheckpoint>> found(search.members.size(), Status::busy());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < search.members.size(); ++i) {
      threads.emplace_back([&, i] {
        CheckpointSearch own = search;
        own.base = base(search.members[i].value() % how.hosts);
        found[i] = find_checkpoint(own, read, *bootstraps[search.members[i].index()]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return found;
  }
  std::vector<Result<FoundCheckpoint>> find(int ranks) const { return find(ranks, {}); }

  // The error that all ranks return, without the host's name and the names of the folders.
  std::string error(int ranks, const How& how) const {
    std::string text;
    for (const auto& each : find(ranks, how)) {
      EXPECT_EQ(each.status().code(), Code::kNotFound);
      const std::string own = shortened(std::string(each.status().message()));
      if (text.empty()) text = own;
      EXPECT_EQ(own, text);
    }
    return text;
  }
  std::string error(int ranks) const { return error(ranks, {}); }

  std::string shortened(std::string text) const {
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    for (const std::string& part :
         {folder_.file("host-0/"), folder_.file("host-1/"), " on " + std::string(host.data())}) {
      for (auto at = text.find(part); at != std::string::npos; at = text.find(part))
        text.erase(at, part.size());
    }
    return text;
  }

  static std::vector<std::vector<std::uint32_t>> shares(
      const std::vector<Result<FoundCheckpoint>>& found) {
    std::vector<std::vector<std::uint32_t>> shares;
    for (const auto& each : found) shares.push_back(each.value().own);
    return shares;
  }

 private:
  testing::TempFolder folder_;
};

using Shares = std::vector<std::vector<std::uint32_t>>;

TEST_F(Checkpoints, FallToFewerAndToMoreRanksInTurn) {
  save_all(5, 30);
  EXPECT_EQ(shares(find(2)), (Shares{{0, 2, 4}, {1, 3}}));
  EXPECT_EQ(shares(find(1)), (Shares{{0, 1, 2, 3, 4}}));
  EXPECT_EQ(shares(find(5)), (Shares{{0}, {1}, {2}, {3}, {4}}));
  EXPECT_EQ(shares(find(7)), (Shares{{0}, {1}, {2}, {3}, {4}, {0}, {1}}));
  EXPECT_EQ(shares(find(12)).back(), (std::vector<std::uint32_t>{1}));
}

// What is summed up over the ranks needs each saved state once.
TEST_F(Checkpoints, OneRankReadsEachFile) {
  save_all(3, 30);
  for (const int ranks : {1, 2, 3, 5}) {
    std::vector<int> read(3);
    for (const auto& each : find(ranks)) {
      for (const std::uint32_t rank : each.value().own) read[rank] += each.value().has_read ? 1 : 0;
    }
    EXPECT_EQ(read, (std::vector<int>{1, 1, 1})) << ranks;
  }
}

TEST_F(Checkpoints, TellWhatAllRanksHaveDone) {
  save_all(4, 30, 7);
  for (const int ranks : {1, 2, 4, 6}) {
    for (const auto& each : find(ranks)) {
      EXPECT_EQ(each.value().run, 7U);
      EXPECT_EQ(each.value().ranks(), 4U);
      EXPECT_EQ(each.value().done, 4 * 3000 + 0 + 1 + 2 + 3);
      EXPECT_EQ(each.value().name(2), (CheckpointName{2, 4, 30}));
    }
  }
}

TEST_F(Checkpoints, TheLatestThatIsCompleteIsTaken) {
  save_all(4, 20);
  save_all(4, 30);
  save({{0, 4, 40}, 1, 0});
  for (const int ranks : {2, 4, 5}) {
    for (const auto& each : find(ranks)) EXPECT_EQ(each.value().name(1).iteration, 30U);
  }
  written(checkpoint_path(base(), {3, 4, 30}), "?");
  for (const int ranks : {2, 4, 5}) {
    for (const auto& each : find(ranks)) EXPECT_EQ(each.value().name(1).iteration, 20U);
  }
}

// A run by another number of ranks began when it was resumed, and its iterations count otherwise.
TEST_F(Checkpoints, TheRunThatBeganLastIsTaken) {
  save_all(4, 500, 1);
  save_all(2, 30, 2);
  for (const int ranks : {1, 2, 4}) {
    for (const auto& each : find(ranks))
      EXPECT_EQ(each.value().name(0), (CheckpointName{0, 2, 30}));
  }
  std::filesystem::remove(checkpoint_path(base(), {1, 2, 30}));
  for (const auto& each : find(3)) EXPECT_EQ(each.value().name(0), (CheckpointName{0, 4, 500}));
}

TEST_F(Checkpoints, WithoutWaitingEachRankIsAtItsLatestIteration) {
  for (const std::uint64_t iteration : {10, 20}) save({{0, 2, iteration}, 1, iteration});
  for (const std::uint64_t iteration : {40, 50}) save({{1, 2, iteration}, 1, iteration});
  for (const int ranks : {1, 2, 3}) {
    for (const auto& each : find(ranks, {.needs_same_iteration = false})) {
      EXPECT_EQ(each.value().iterations, (std::vector<std::uint64_t>{20, 50}));
      EXPECT_EQ(each.value().done, 70);
    }
  }
  EXPECT_NE(error(2), "");
  std::filesystem::remove(checkpoint_path(base(), {1, 2, 40}));
  std::filesystem::remove(checkpoint_path(base(), {1, 2, 50}));
  EXPECT_EQ(error(3, {.needs_same_iteration = false}),
            "there is no complete checkpoint 'model': saved by 2 ranks: rank 1 does not find "
            "model.1-of-2.ITERATION");
}

TEST_F(Checkpoints, WithoutFilesThereIsNone) {
  const std::string none =
      "there is no checkpoint 'model': no rank finds a file model.RANK-of-RANKS.ITERATION";
  EXPECT_EQ(error(1), none);
  EXPECT_EQ(error(3), none);
}

TEST_F(Checkpoints, AMissingFileIsNamed) {
  save_all(4, 20);
  save_all(4, 30);
  std::filesystem::remove(checkpoint_path(base(), {2, 4, 20}));
  std::filesystem::remove(checkpoint_path(base(), {3, 4, 30}));
  const auto expected = [](int reader_of_2, int reader_of_3) {
    return fmt::format(
        "there is no complete checkpoint 'model': iteration 30, saved by 4 ranks: rank {} does not "
        "find model.3-of-4.30; iteration 20, saved by 4 ranks: rank {} does not find "
        "model.2-of-4.20",
        reader_of_3, reader_of_2);
  };
  EXPECT_EQ(error(2), expected(0, 1));
  EXPECT_EQ(error(4), expected(2, 3));
  EXPECT_EQ(error(7), expected(2, 3));
}

TEST_F(Checkpoints, OfManyMissingFilesTheFirstAreNamed) {
  save({{7, 9, 30}, 1, 0});
  EXPECT_EQ(error(1),
            "there is no complete checkpoint 'model': iteration 30, saved by 9 ranks: rank 0 does "
            "not find model.0-of-9.30, rank 0 does not find model.1-of-9.30, rank 0 does not find "
            "model.2-of-9.30, and others");
}

TEST_F(Checkpoints, ADamagedFileIsNamed) {
  save_all(4, 30);
  written(checkpoint_path(base(), {2, 4, 30}), "?");
  for (const int ranks : {2, 4, 5}) {
    EXPECT_EQ(error(ranks),
              "there is no complete checkpoint 'model': iteration 30, saved by 4 ranks: "
              "model.2-of-4.30: is damaged");
  }
}

TEST_F(Checkpoints, WhereAllFilesAreDamagedTheyAreNamed) {
  written(checkpoint_path(base(), {0, 1, 30}), "?");
  EXPECT_EQ(error(2), "there is no complete checkpoint 'model': model.0-of-1.30: is damaged");
}

TEST_F(Checkpoints, FilesOfSeveralRunsAreNotMixed) {
  save_all(4, 30, 1);
  save({{1, 4, 30}, 2, 0});
  EXPECT_EQ(error(2),
            "there is no complete checkpoint 'model': iteration 30, saved by 4 ranks: "
            "model.0-of-4.30 is of another run, model.2-of-4.30 is of another run, model.3-of-4.30 "
            "is of another run; iteration 30, saved by 4 ranks: model.1-of-4.30 is of another run");
}

TEST_F(Checkpoints, FilesOfSeveralIterationsAreNotMixed) {
  for (const std::uint32_t rank : {0, 1}) save({{rank, 2, 30 + rank}, 1, 0});
  EXPECT_EQ(error(1),
            "there is no complete checkpoint 'model': iteration 31, saved by 2 ranks: rank 0 does "
            "not find model.0-of-2.31; iteration 30, saved by 2 ranks: rank 0 does not find "
            "model.1-of-2.30");
}

TEST_F(Checkpoints, AFileWithAnotherNameIsNotTaken) {
  save({{0, 2, 30}, 1, 0});
  save_as({1, 2, 30}, {{1, 2, 20}, 1, 0});  // another iteration
  EXPECT_EQ(error(1),
            "there is no complete checkpoint 'model': iteration 30, saved by 2 ranks: "
            "model.1-of-2.30 has another name than it was saved under, which ended in .1-of-2.20");
  save_as({1, 2, 30}, {{1, 4, 30}, 1, 0});  // another number of ranks
  EXPECT_EQ(error(3),
            "there is no complete checkpoint 'model': iteration 30, saved by 2 ranks: "
            "model.1-of-2.30 has another name than it was saved under, which ended in .1-of-4.30");
}

// As many ranks as have saved need their own files only.
TEST_F(Checkpoints, OnHostsWithoutACommonFolder) {
  for (std::uint32_t rank = 0; rank < 4; ++rank)
    save({{rank, 4, 30}, 1, 0}, static_cast<int>(rank) % 2);
  EXPECT_EQ(shares(find(4, {.hosts = 2})), (Shares{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(shares(find(2, {.hosts = 2})), (Shares{{0, 2}, {1, 3}}));
  const std::string advice = "(copy it, or use a folder that all hosts share)";
  EXPECT_EQ(error(3, {.hosts = 2}),
            "there is no complete checkpoint 'model': iteration 30, saved by 4 ranks: rank 0 does "
            "not find model.3-of-4.30, but rank 1 does " +
                advice);
}

// Here, the rank that has no file to read finds out by itself.
TEST_F(Checkpoints, ARankThatSharesAStateNamesTheFileThatItDoesNotFind) {
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    save({{rank, 2, 30}, 1, 0}, static_cast<int>(rank) % 2);
  const auto found = find(5, {.hosts = 2});
  for (const std::size_t rank : {0, 1}) EXPECT_TRUE(found[rank].is_ok());
  // Rank 2 is on host 0 and needs a file of rank 0, rank 3 one of rank 1. Rank 4 has rank 0's.
  EXPECT_TRUE(found[2].is_ok() && found[3].is_ok() && found[4].is_ok());
  for (const std::uint32_t rank : {0, 1, 2})
    save({{rank, 3, 40}, 2, 0}, static_cast<int>(rank) % 2);
  const Status status = find(4, {.hosts = 2})[3].status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_EQ(shortened(std::string(status.message())),
            "rank 3 does not find model.0-of-3.40, but rank 0 does (copy it, or use a folder that "
            "all hosts share)");
}

// Survivors of a death before the training.
TEST_F(Checkpoints, WithoutADeadRank) {
  save_all(4, 30);
  EXPECT_EQ(shares(find(5, {.dead = 1})), (Shares{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(shares(find(3, {.dead = 0})), (Shares{{0, 2}, {1, 3}}));
  // With as many ranks as have saved, the files of the dead rank are needed by nobody.
  std::filesystem::remove(checkpoint_path(base(), {2, 4, 30}));
  EXPECT_EQ(shares(find(4, {.dead = 2})), (Shares{{0}, {1}, {3}}));
}

TEST_F(Checkpoints, TheIterationsOfARunAreListed) {
  save_all(2, 10, 1);
  save_all(2, 20, 2);
  save_all(2, 30, 2);
  save_all(3, 40, 2);
  EXPECT_EQ(saved_iterations(base(), 1, 2, 2, read), (std::set<std::uint64_t>{20, 30}));
}

}  // namespace
}  // namespace dunlin
