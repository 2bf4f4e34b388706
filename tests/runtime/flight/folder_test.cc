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

// What the record of a process that has ended looks like: this one's with another start time.
std::string ended_record(const Recorder& running) {
  std::string record = dunlin::testing::content_of(running.path());
  const std::string own = std::to_string(getpid());
  const std::size_t at = record.find("/" + own + "/");
  EXPECT_NE(at, std::string::npos);
  record[at + own.size() + 2] = '0';
  return record;
}

// So many hours ago.
fs::file_time_type past(int hours) {
  return fs::file_time_type::clock::now() - std::chrono::hours(hours);
}

// Jobs that have ended, newer than anything older than this, so that older ones have to go.
void fill(const std::string& base, const std::string& record) {
  for (std::size_t i = 0; i < kKeptJobs; ++i) {
    const std::string job = fmt::format("{}/newer-{:02}", base, i);
    fs::create_directories(job);
    dunlin::testing::written(job + "/rank-0", record);
    fs::last_write_time(job, past(1));
  }
}

TEST_F(FlightFolderTest, LeavesFilesAloneThatAreNotItsOwn) {
  const std::string base = temporary_.file("base");
  const auto running = recorder();
  const std::string ended = ended_record(*running);
  fill(base, ended);
  const auto made = [&](const std::string& folder, const std::string& name,
                        const std::string& content) {
    fs::create_directories(base + "/" + folder);
    if (!name.empty()) dunlin::testing::written(base + "/" + folder + "/" + name, content);
    fs::last_write_time(base + "/" + folder, past(100));
    return base + "/" + folder + "/" + name;
  };
  const std::string empty = made("empty", "", "");
  const std::string foreign = made("foreign", "rank-0", std::string(200'000, 'x'));
  const std::string zeros = made("zeros", "rank-0", std::string(ended.size(), '\0'));
  (void)made("mixed", "rank-0", ended);
  (void)made("mixed", "rank-1", "results of rank 1");
  const std::string notes = made("mixed", "notes", "mine");
  // A link to a folder with a record, and a link instead of a record.
  const std::string elsewhere = temporary_.file("elsewhere");
  fs::create_directories(elsewhere);
  dunlin::testing::written(elsewhere + "/rank-0", ended);
  fs::last_write_time(elsewhere, past(100));
  fs::create_directory_symlink(elsewhere, base + "/link");
  fs::create_directories(base + "/linked");
  fs::create_symlink(elsewhere + "/rank-0", base + "/linked/rank-0");
  fs::last_write_time(base + "/linked", past(100));
  EXPECT_EQ(list_jobs(base).size(), kKeptJobs + 2);  // with "job" and "mixed"
  remove_old_jobs(base, "new");
  for (const std::string& each : {empty, foreign, zeros, notes, base + "/mixed/rank-1",
                                  elsewhere + "/rank-0", base + "/link", base + "/linked/rank-0"})
    EXPECT_TRUE(fs::exists(each)) << each;
  EXPECT_FALSE(fs::exists(base + "/mixed/rank-0"));
  remove_job(base + "/foreign");
  EXPECT_TRUE(fs::exists(foreign));
}

TEST_F(FlightFolderTest, ARecordOfAnotherVersionIsInUseForADay) {
  const std::string base = temporary_.file("base");
  const auto running = recorder();
  std::string record = ended_record(*running);
  fill(base, record);
  record[offsetof(Header, version)] = 77;
  for (const int hours : {2, 30}) {
    const std::string job = fmt::format("{}/other-{}", base, hours);
    fs::create_directories(job);
    fs::last_write_time(dunlin::testing::written(job + "/rank-0", record), past(hours));
    fs::last_write_time(job, past(hours));
  }
  remove_old_jobs(base, "new");
  EXPECT_TRUE(fs::exists(base + "/other-2/rank-0"));
  EXPECT_FALSE(fs::exists(base + "/other-30"));
}

TEST_F(FlightFolderTest, CleansNoFolderThatAnotherUserMayHavePrepared) {
  const std::string base = temporary_.file("base");
  const std::string link = temporary_.file("link");
  const auto running = recorder();
  const std::string ended = ended_record(*running);
  fill(base, ended);
  const std::string old = base + "/old";
  fs::create_directories(old);
  dunlin::testing::written(old + "/rank-0", ended);
  fs::last_write_time(old, past(100));
  fs::create_directory_symlink(base, link);
  remove_old_jobs(link, "new");
  EXPECT_TRUE(fs::exists(old));
  EXPECT_EQ(Recorder::create({link + "/job", "job", Rank(1), 4, false}, clock_).status().code(),
            Code::kPermissionDenied);
  chmod(base.c_str(), 0770);
  remove_old_jobs(base, "new");
  EXPECT_TRUE(fs::exists(old));
  chmod(base.c_str(), 0700);
  if (geteuid() == 0) {
    ASSERT_EQ(chown(base.c_str(), 12345, 0), 0);
    remove_old_jobs(base, "new");
    EXPECT_TRUE(fs::exists(old));
    ASSERT_EQ(chown(base.c_str(), 0, 0), 0);
  }
  remove_old_jobs(base, "new");
  EXPECT_FALSE(fs::exists(old));
}

TEST_F(FlightFolderTest, OneRankReportsOnTheOthers) {
  const auto made = recorder();
  EXPECT_TRUE(may_report(folder()));
  EXPECT_FALSE(may_report(folder()));
  EXPECT_EQ(list_records(folder()).size(), 1u);
  fs::last_write_time(folder() + "/reported", past(1));
  EXPECT_TRUE(may_report(folder()));
  EXPECT_FALSE(may_report(folder()));
  remove_job(folder());
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(FlightFolderTest, RemovesWhatIsOldButNotWhatRuns) {
  const std::string base = temporary_.file("base");
  // The record of this process, which runs, and records of processes that have ended.
  const auto running = recorder();
  const std::string ended = ended_record(*running);
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
