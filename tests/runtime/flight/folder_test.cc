#include "runtime/flight/folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/runtime/flight/record_support.h"
#include "tests/support/files.h"

namespace dunlin::flight::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::MatchesRegex;

JobKey key_of(int number) {
  JobKey key{};
  key[5] = static_cast<std::byte>(number);
  return key;
}

TEST(FlightFolder, JobNamesAreFileNamesAndTellJobsApart) {
  EXPECT_THAT(job_name("job-1a2b", key_of(1)), MatchesRegex("job-1a2b-[0-9a-f]{8}"));
  EXPECT_THAT(job_name("../a b/c", key_of(1)), MatchesRegex("_.?_a_b_c-[0-9a-f]{8}"));
  EXPECT_THAT(job_name("", key_of(1)), MatchesRegex("job-[0-9a-f]{8}"));
  EXPECT_LT(job_name(std::string(5000, 'x'), key_of(1)).size(), 100u);
  EXPECT_NE(job_name("same", key_of(1)), job_name("same", key_of(2)));
}

TEST(FlightFolder, IsTheConfiguredOneOrTheUsers) {
  Config config;
  EXPECT_EQ(base_folder(config), fmt::format("/dev/shm/dunlin-flight-{}", geteuid()));
  config.flight = "/somewhere";
  EXPECT_EQ(base_folder(config), "/somewhere");
}

using FlightFolderTest = RecordTest;

TEST_F(FlightFolderTest, ListsRecordsByRank) {
  const auto two = recorder(Rank(2), 20);
  const auto ten = recorder(Rank(10), 20);
  dunlin::testing::written(folder() + "/rank-x", "no record");
  dunlin::testing::written(folder() + "/notes", "no record");
  EXPECT_THAT(list_records(folder()), ElementsAre(two->path(), ten->path()));
  const auto jobs = list_jobs(temporary_.file("base"));
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].name, "job");
  EXPECT_EQ(jobs[0].records.size(), 2u);
  EXPECT_TRUE(list_jobs(temporary_.file("none")).empty());
}

TEST_F(FlightFolderTest, RefusesAFolderThatOthersCanWriteTo) {
  fs::create_directories(folder());
  chmod(folder().c_str(), 0777);
  const auto made = Recorder::create({folder(), "job", Rank(0), 4, false}, clock_);
  EXPECT_EQ(made.status().code(), Code::kPermissionDenied);
}

TEST_F(FlightFolderTest, RemovesWhatIsOldButNotWhatRuns) {
  const std::string base = temporary_.file("base");
  // The record of this process, which runs, and records of processes that have ended.
  const auto running = recorder();
  std::string ended = dunlin::testing::content_of(running->path());
  const std::string own = std::to_string(getpid());
  const std::size_t at = ended.find("/" + own + "/");
  ASSERT_NE(at, std::string::npos);
  ended[at + own.size() + 2] = '0';  // another start time
  const auto hour = std::chrono::hours(1);
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(folder(), now - 100 * hour);
  for (int i = 0; i < 20; ++i) {
    const std::string job = fmt::format("{}/old-{:02}", base, i);
    fs::create_directories(job);
    dunlin::testing::written(job + "/rank-0", ended);
    fs::last_write_time(job, now - (i + 1) * hour);
  }
  remove_old_jobs(base, "new");
  EXPECT_TRUE(fs::exists(running->path()));
  EXPECT_TRUE(fs::exists(base + "/old-00"));
  EXPECT_TRUE(fs::exists(fmt::format("{}/old-{:02}", base, kKeptJobs - 1)));
  EXPECT_FALSE(fs::exists(fmt::format("{}/old-{:02}", base, kKeptJobs)));
  EXPECT_FALSE(fs::exists(base + "/old-19"));
  EXPECT_EQ(list_jobs(base).size(), kKeptJobs + 1);
}

}  // namespace
}  // namespace dunlin::flight::testing
