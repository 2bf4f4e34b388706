#include "runtime/flight/reader.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "tests/runtime/flight/record_support.h"
#include "tests/support/files.h"

namespace dunlin::flight::testing {
namespace {

using dunlin::testing::content_of;
using dunlin::testing::written;
using ::testing::HasSubstr;

class ReaderTest : public RecordTest {
 protected:
  // A record with some content, as bytes.
  std::string record() {
    auto made = recorder(Rank(1), 4, true);
    made->begin("all_reduce", 100);
    wait(*made, Rank(2), std::chrono::milliseconds(3));
    made->end("all_reduce", 100);
    made->bytes("shm", 1, 2);
    made->fail({Code::kIoError, "something"});
    return content_of(made->path());
  }
  Status refusal(const std::string& content) {
    return Record::open(written(temporary_.file("record"), content)).status();
  }
  // Reads everything, as any program does.
  void read_all(const std::string& content) {
    const auto read = Record::open(written(temporary_.file("record"), content));
    if (!read) return;
    const Snapshot snapshot = read->snapshot(clock_.now());
    EXPECT_GE(snapshot.elapsed(), Duration::zero());
    EXPECT_GE(snapshot.waited, Duration::zero());
    for (const PeerTime& each : snapshot.peers) EXPECT_LT(each.peer.value(), snapshot.size);
    EXPECT_THAT(snapshot.operation + snapshot.job + snapshot.host + snapshot.error,
                ::testing::Not(::testing::ContainsRegex("[^ -~]")));
    for (const PastEvent& event : read->events())
      EXPECT_THAT(event.name, ::testing::Not(::testing::ContainsRegex("[^ -~]")));
  }
};

TEST_F(ReaderTest, ReadsACopy) {
  const auto read = Record::open(written(temporary_.file("copy"), record()));
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  const Snapshot now = read->snapshot(clock_.now());
  EXPECT_EQ(now.rank, Rank(1));
  EXPECT_EQ(now.operations, 1u);
  EXPECT_EQ(read->events().size(), 3u);
}

TEST_F(ReaderTest, SaysWhatIsWrongWithAFile) {
  EXPECT_EQ(Record::open(temporary_.file("none")).status().code(), Code::kNotFound);
  EXPECT_THAT(refusal("").to_string(), HasSubstr("has 0 bytes"));
  const std::string good = record();
  EXPECT_THAT(refusal(good.substr(0, good.size() - 1)).to_string(),
              HasSubstr("bytes, but a flight"));
  EXPECT_THAT(refusal(good + "x").to_string(), HasSubstr("bytes, but a flight"));
  EXPECT_THAT(refusal(std::string(good.size(), '\0')).to_string(), HasSubstr("no flight record"));
  std::string other = good;
  other[8] = 2;
  EXPECT_THAT(refusal(other).to_string(), HasSubstr("of version 2"));
  other = good;
  other[24] = 9;  // the rank
  EXPECT_THAT(refusal(other).to_string(), HasSubstr("rank 9 of 4"));
  for (const std::string& each : {std::string(), good.substr(1), other})
    EXPECT_EQ(refusal(each).code(), Code::kCorrupted);
}

TEST_F(ReaderTest, TakesNothingButAFileOfItsUser) {
  EXPECT_EQ(Record::open(temporary_.path().string()).status().code(), Code::kCorrupted);
  const std::string fifo = temporary_.file("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(Record::open(fifo).status().code(), Code::kCorrupted);
  const std::string link = temporary_.file("link");
  std::filesystem::create_symlink(written(temporary_.file("record"), record()), link);
  EXPECT_FALSE(Record::open(link).is_ok());
  if (geteuid() != 0) GTEST_SKIP() << "giving a file to another user needs root";
  ASSERT_EQ(chown(temporary_.file("record").c_str(), 12345, 0), 0);
  EXPECT_EQ(Record::open(temporary_.file("record")).status().code(), Code::kPermissionDenied);
}

// The file of a rank that died in the middle of a change, whose sequence number stays odd.
TEST_F(ReaderTest, LeavesOutWhatWasNeverFinished) {
  std::string torn = record();
  torn[offsetof(File, now)] ^= 1;
  torn[offsetof(File, steps)] ^= 1;
  torn[offsetof(File, peers)] ^= 1;
  read_all(torn);
  const auto read = Record::open(temporary_.file("record"));
  ASSERT_TRUE(read.is_ok());
  EXPECT_EQ(read->snapshot(clock_.now()).operations, 1u);
}

TEST_F(ReaderTest, LeavesOutTheSumsOfAWaitWhoseEndWasNeverFinished) {
  std::string torn = record();
  torn[offsetof(File, now) + offsetof(Now, wait_sequence)] ^= 1;
  read_all(torn);
  const auto read = Record::open(temporary_.file("record"));
  ASSERT_TRUE(read.is_ok());
  const Snapshot now = read->snapshot(clock_.now());
  EXPECT_EQ(now.awaited, Rank());
  EXPECT_EQ(now.waited, Duration::zero());
  EXPECT_TRUE(now.peers.empty());
  EXPECT_EQ(now.operations, 1u);  // a counter of its own
}

// A record that was copied from another host, or lies there since before the last start of this
// one.
TEST_F(ReaderTest, TheEndOfARankOfAnotherBootIsTheLastTimeThatItKnew) {
  std::string content;
  {
    const auto made = recorder(Rank(1), 4, true);
    wait(*made, Rank(2), std::chrono::milliseconds(3));
    made->wait_for(Rank(3), clock_.now(), clock_.now());
    content = content_of(made->path());  // as it is while the rank runs
  }
  const TimePoint last = clock_.now();
  char& first = content[offsetof(File, header) + offsetof(Header, process)];
  first = first == '0' ? '1' : '0';
  const auto read = Record::open(written(temporary_.file("record"), content));
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  // A clock that is behind that of the record, and one that is ahead.
  for (const TimePoint now : {TimePoint(std::chrono::seconds(1)), last + std::chrono::hours(9)}) {
    const Snapshot snapshot = read->snapshot(now);
    EXPECT_TRUE(snapshot.is_from_elsewhere);
    EXPECT_TRUE(snapshot.is_over());
    EXPECT_TRUE(snapshot.has_unknown_end());
    EXPECT_FALSE(snapshot.has_failed());
    EXPECT_EQ(snapshot.at, last);
    EXPECT_EQ(snapshot.elapsed(), std::chrono::milliseconds(3));
  }
}

TEST_F(ReaderTest, SurvivesAnyContent) {
  const std::string good = record();
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string bad = good;
    // Small changes of the parts, and noise instead of everything behind the header.
    const std::size_t first = round % 3 == 0 ? 0 : sizeof(Header);
    const std::size_t last = round % 2 == 0 ? offsetof(File, events) + 4096 : bad.size();
    const int changes = round % 10 == 0 ? 20000 : 40;
    for (int i = 0; i < changes; ++i)
      bad[first + random() % (last - first)] = static_cast<char>(random());
    read_all(bad);
  }
}

}  // namespace
}  // namespace dunlin::flight::testing
