#include "runtime/flight/recorder.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "runtime/flight/report.h"
#include "runtime/flight/wait_record.h"
#include "tests/runtime/flight/record_support.h"

namespace dunlin::flight::testing {
namespace {

using namespace std::chrono_literals;

using RecorderTest = RecordTest;

TEST_F(RecorderTest, SaysWhoItIs) {
  const auto made = recorder(Rank(2), 4);
  const Snapshot now = snapshot(*made);
  EXPECT_EQ(now.rank, Rank(2));
  EXPECT_EQ(now.size, 4);
  EXPECT_EQ(now.job, "job");
  EXPECT_EQ(now.pid, getpid());
  EXPECT_EQ(now.process, ProcessState::kRunning);
  EXPECT_EQ(now.phase, Phase::kRunning);
  EXPECT_FALSE(now.is_over());
}

TEST_F(RecorderTest, OnlyItsUserCanReadTheFile) {
  const auto made = recorder();
  struct stat info {};
  ASSERT_EQ(stat(made->path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(folder().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(RecorderTest, ShowsTheOperationInProgress) {
  const auto made = recorder();
  made->begin("all_reduce", 4096);
  Snapshot now = snapshot(*made);
  EXPECT_EQ(now.operation, "all_reduce");
  EXPECT_EQ(now.operation_bytes, 4096u);
  EXPECT_FALSE(now.operation_since.has_value());  // no clock was read
  const TimePoint began = clock_.now();
  made->wait_for(Rank(3), began, began);
  clock_.advance(20ms);
  now = snapshot(*made);
  EXPECT_EQ(now.operation_since, began);
  EXPECT_EQ(now.awaited, Rank(3));
  EXPECT_EQ(now.at - now.awaited_since, 20ms);
  EXPECT_EQ(now.waited, 20ms);  // with the wait in progress
  ASSERT_EQ(now.peers.size(), 1u);
  EXPECT_EQ(now.peers[0].waited, 20ms);
  made->end_wait(clock_.now());
  made->end("all_reduce", 4096);
  now = snapshot(*made);
  EXPECT_EQ(now.operation, "");
  EXPECT_EQ(now.awaited, Rank());
  EXPECT_EQ(now.operations, 1u);
  EXPECT_EQ(now.waited, 20ms);
}

TEST_F(RecorderTest, AnOperationThatFailedIsNotInProgress) {
  const auto made = recorder();
  made->begin("all_reduce", 8);
  EXPECT_EQ(snapshot(*made).operation, "all_reduce");
  made->give_up();
  EXPECT_EQ(snapshot(*made).operation, "");
  EXPECT_TRUE(events(*made).empty());
}

TEST_F(RecorderTest, TheTimesOfAnOperationAreThoseOfItsWaits) {
  const auto made = recorder();
  clock_.advance(1s);  // of computing, which belongs to no operation
  made->begin("barrier", 0);
  wait(*made, Rank(1), 5ms);
  made->end("barrier", 0);
  const auto past = events(*made);
  ASSERT_EQ(past.size(), 2u);
  EXPECT_EQ(past[0].kind, EventKind::kWait);
  EXPECT_EQ(past[0].peer, Rank(1));
  EXPECT_EQ(past[0].ended - past[0].began, 5ms);
  EXPECT_EQ(past[1].kind, EventKind::kOperation);
  EXPECT_EQ(past[1].name, "barrier");
  EXPECT_EQ(past[1].ended - past[1].began, 5ms);
}

TEST_F(RecorderTest, EqualOperationsInARowTakeOneEvent) {
  const auto made = recorder();
  for (int i = 0; i < 1000; ++i) {
    made->begin("all_reduce", 8);
    made->end("all_reduce", 8);
  }
  made->begin("broadcast", 8);
  made->end("broadcast", 8);
  const auto past = events(*made);
  ASSERT_EQ(past.size(), 2u);
  EXPECT_EQ(past[0].name, "all_reduce");
  EXPECT_EQ(past[0].count, 1000u);
  EXPECT_EQ(past[0].value, 8u);
  EXPECT_EQ(past[1].name, "broadcast");
  EXPECT_EQ(past[1].count, 1u);
  EXPECT_EQ(snapshot(*made).operations, 1001u);
}

TEST_F(RecorderTest, KeepsTheLastEventsOnly) {
  const auto made = recorder();
  for (std::uint64_t i = 0; i < kEvents + 10; ++i) {
    made->begin("put", i);
    made->end("put", i);
  }
  const auto past = events(*made);
  ASSERT_EQ(past.size(), kEvents);
  EXPECT_EQ(past.front().value, 10u);
  EXPECT_EQ(past.back().value, kEvents + 9);
}

TEST_F(RecorderTest, KindsThatNoLongerFitShareAName) {
  static const char* const kNamed[] = {"a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9",
                                       "b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9",
                                       "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9",
                                       "d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9"};
  const auto made = recorder();
  for (const char* const name : kNamed) {
    made->begin(name, 1);
    made->end(name, 1);
  }
  const auto past = events(*made);
  ASSERT_EQ(past.size(), std::size(kNamed));
  EXPECT_EQ(past[0].name, "a0");
  EXPECT_EQ(past[kNames - 2].name, kNamed[kNames - 2]);
  EXPECT_EQ(past[kNames - 1].name, "other");
  EXPECT_EQ(past.back().name, "other");
}

TEST_F(RecorderTest, AStepLeavesOutTheWaits) {
  const auto made = recorder();
  for (std::uint64_t step = 1; step <= 3; ++step) {
    made->step(step);
    clock_.advance(10ms);
    wait(*made, Rank(1), 30ms);
  }
  made->step(4);
  const Snapshot now = snapshot(*made);
  EXPECT_EQ(now.step, 4u);
  EXPECT_EQ(now.steps, 3u);
  EXPECT_EQ(now.step_time, 120ms);
  EXPECT_EQ(now.own_time, 30ms);
  EXPECT_EQ(now.waited, 90ms);
}

TEST_F(RecorderTest, ManyPeersTakeNoMoreSpaceAndTheLongestWaitsStay) {
  const auto made = recorder(Rank(0), 16384);
  Duration sum{};
  for (int round = 0; round < 3; ++round) {
    for (int peer = 1; peer < 2000; ++peer) {
      const Duration time = peer == 777 ? 1s : 1ms;
      wait(*made, Rank(peer), time);
      sum += time;
    }
  }
  const Snapshot now = snapshot(*made);
  EXPECT_EQ(now.waited, sum);
  EXPECT_LE(now.peers.size(), kPeers);
  ASSERT_FALSE(now.peers.empty());
  EXPECT_EQ(now.peers[0].peer, Rank(777));
  EXPECT_EQ(now.peers[0].waited, 3s);
  EXPECT_EQ(now.peers[0].waits, 3u);
}

TEST_F(RecorderTest, ShowsTheBytesOfEachTransport) {
  const auto made = recorder();
  made->bytes("shm", 10, 20);
  made->bytes("tcp", 1, 0);
  made->bytes("shm", 30, 40);
  const Snapshot now = snapshot(*made);
  ASSERT_EQ(now.transports.size(), 2u);
  EXPECT_EQ(now.transports[0].name, "shm");
  EXPECT_EQ(now.transports[0].put, 30u);
  EXPECT_EQ(now.transports[0].got, 40u);
  EXPECT_EQ(now.transports[1].name, "tcp");
}

TEST_F(RecorderTest, ARankThatLeavesRemovesItsFileAndTheLastOneTheFolder) {
  auto first = recorder(Rank(0));
  auto second = recorder(Rank(1));
  const PeerTable peers(4);
  first->leave(peers);
  first.reset();
  EXPECT_TRUE(std::filesystem::exists(second->path()));
  second->leave(peers);
  second.reset();
  EXPECT_FALSE(std::filesystem::exists(folder()));
}

TEST_F(RecorderTest, AfterADeathTheFilesStay) {
  auto made = recorder();
  const std::string path = made->path();
  PeerTable peers(4);
  peers.mark(Rank(3), PeerState::kDead, "killed");
  made->leave(peers);
  made.reset();
  EXPECT_EQ(snapshot(path).phase, Phase::kEnded);
}

TEST_F(RecorderTest, ARankThatEndsAloneKeepsItsFile) {
  auto made = recorder();
  const std::string path = made->path();
  made->keep();
  made->leave(PeerTable(4));
  made.reset();
  EXPECT_EQ(snapshot(path).phase, Phase::kEnded);
}

TEST_F(RecorderTest, ARankThatGoesOnAfterAnErrorHasNotFailed) {
  auto made = recorder();
  const std::string path = made->path();
  made->fail(Status(Code::kPeerDead, "rank 3 is dead").with_peer(Rank(3)));
  EXPECT_FALSE(snapshot(path).has_failed());
  EXPECT_THAT(report_on(folder()), ::testing::HasSubstr("rank 0 met an error: peer_dead: rank 3"));
  made->leave(PeerTable(4));
  made.reset();
  EXPECT_EQ(snapshot(path).phase, Phase::kEnded);
  EXPECT_FALSE(snapshot(path).has_failed());
  EXPECT_THAT(report_on(folder()), ::testing::HasSubstr("rank 0 met an error: peer_dead: rank 3"));
}

TEST_F(RecorderTest, AnErrorIsKeptWithItsText) {
  auto made = recorder();
  const std::string path = made->path();
  made->fail(Status(Code::kPeerDead, std::string(1000, 'x')).with_peer(Rank(3)));
  made->fail(Status(Code::kPeerDead, std::string(1000, 'x')).with_peer(Rank(3)));
  const auto past = events(*made);
  ASSERT_EQ(past.size(), 1u);  // the same error again is no other one
  EXPECT_EQ(past[0].kind, EventKind::kError);
  EXPECT_EQ(past[0].peer, Rank(3));
  made.reset();
  const Snapshot last = snapshot(path);
  EXPECT_EQ(last.phase, Phase::kFailed);
  EXPECT_TRUE(last.has_failed());
  EXPECT_THAT(report_on(folder()), ::testing::HasSubstr("rank 0 failed: peer_dead: xxxx"));
  EXPECT_THAT(last.error, ::testing::StartsWith("peer_dead: xxxx"));
  EXPECT_LT(last.error.size(), 512u);
}

TEST_F(RecorderTest, ARecordThatWasAskedForStays) {
  auto made = recorder(Rank(0), 4, true);
  const std::string path = made->path();
  made->leave(PeerTable(4));
  made.reset();
  EXPECT_EQ(snapshot(path).phase, Phase::kEnded);
}

TEST_F(RecorderTest, TheRecordOfAKilledRankCanBeRead) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto made = Recorder::create({folder(), "job", Rank(1), 4, false}, clock_);
    (*made)->step(17);
    (*made)->begin("all_reduce", 4096);
    (*made)->wait_for(Rank(3), clock_.now(), clock_.now());
    (void)!write(ready[1], "x", 1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const std::string path = folder() + "/rank-1";
  EXPECT_EQ(snapshot(path).process, ProcessState::kRunning);
  kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  for (const bool is_reaped : {false, true}) {
    if (is_reaped) {
      ASSERT_EQ(waitpid(child, nullptr, 0), child);
    }
    const Snapshot last = snapshot(path);
    EXPECT_EQ(last.process, ProcessState::kEnded);
    EXPECT_EQ(last.phase, Phase::kRunning);  // it has not left
    EXPECT_EQ(last.pid, child);
    EXPECT_EQ(last.step, 17u);
    EXPECT_EQ(last.operation, "all_reduce");
    EXPECT_EQ(last.awaited, Rank(3));
  }
  close(ready[0]);
  close(ready[1]);
}

TEST_F(RecorderTest, AForkedChildDoesNotEndTheRecord) {
  auto made = recorder();
  made->leave(PeerTable(4));
  const pid_t child = fork();
  if (child == 0) {
    made.reset();
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(snapshot(*made).phase, Phase::kRunning);
}

// The two numbers of each update belong together: a reader that mixes two updates sees it.
TEST_F(RecorderTest, AReaderNeverTakesATornPart) {
  const auto made = recorder(Rank(0), 4);
  const auto record = Record::open(made->path());
  ASSERT_TRUE(record.is_ok());
  std::atomic<bool> ends{false};
  const auto at = [](std::uint64_t ns) { return TimePoint(std::chrono::nanoseconds(ns)); };
  std::thread writer([&] {
    static const char* const kNamed[] = {"even", "odd"};
    for (std::uint64_t i = 0; !ends.load(std::memory_order_relaxed); ++i) {
      made->begin(kNamed[i % 2], i);
      made->end(kNamed[i % 2], i);
      // Waits don't follow each other as fast as operations.
      if (i % 500 == 0) made->wait_for(Rank(static_cast<int>(i % 3 + 1)), at(i), at(i));
      if (i % 500 == 250) made->end_wait(at(i - 249));
    }
  });
  std::size_t seen = 0;
  for (int i = 0; i < 2000 || seen < 100; ++i) {
    const Snapshot now = record->snapshot(clock_.now());
    const bool has_operation = now.operation == "even" || now.operation == "odd";
    if (has_operation) {
      EXPECT_EQ(now.operation_bytes % 2, now.operation == "even" ? 0u : 1u);
    }
    if (now.awaited != Rank()) {
      EXPECT_EQ(static_cast<int>(now.awaited_since.time_since_epoch().count() % 3 + 1),
                now.awaited.value());
    }
    Duration sum{};
    for (const PeerTime& each : now.peers) {
      // Each wait took 1 ns; the one in progress is dated far back.
      if (each.peer != now.awaited) {
        EXPECT_EQ(each.waited.count(), static_cast<long>(each.waits));
      }
      sum += each.waited;
    }
    EXPECT_EQ(sum, now.waited);
    std::uint64_t before = 0;
    for (const PastEvent& event : record->events()) {
      if (event.kind != EventKind::kOperation) continue;
      EXPECT_EQ(event.name, event.value % 2 == 0 ? "even" : "odd");
      EXPECT_TRUE(event.value > before || before == 0) << event.value << " after " << before;
      before = event.value;
      ++seen;
    }
  }
  ends = true;
  writer.join();
}

TEST_F(RecorderTest, ShortWaitsAreNotRecordedAndReadNoClock) {
  class CountingClock final : public Clock {
   public:
    TimePoint now() const override {
      ++readings;
      return TimePoint(1s);
    }
    mutable int readings = 0;
  };
  const auto made = recorder();
  const CountingClock clock;
  {
    WaitRecord record(made.get(), TimePoint(1s));
    record.note(TimePoint(1s) + kShortestWait - 1ns, Rank(1));
    record.end(clock);
  }
  EXPECT_EQ(clock.readings, 0);
  EXPECT_EQ(snapshot(*made).peers.size(), 0u);
  {
    WaitRecord record(made.get(), TimePoint(1s) - kShortestWait);
    record.note(TimePoint(1s), Rank(1));
    record.end(clock);
  }
  EXPECT_EQ(clock.readings, 1);
  ASSERT_EQ(snapshot(*made).peers.size(), 1u);
  EXPECT_EQ(snapshot(*made).peers[0].waited, kShortestWait);
}

TEST_F(RecorderTest, AWaitThatTurnsToAnotherPeerIsDivided) {
  const auto made = recorder();
  const TimePoint began = clock_.now();
  WaitRecord record(made.get(), began);
  clock_.advance(10ms);
  record.note(clock_.now(), Rank(1));
  clock_.advance(5ms);
  record.note(clock_.now(), Rank(2));
  clock_.advance(2ms);
  record.end(clock_);
  const Snapshot now = snapshot(*made);
  ASSERT_EQ(now.peers.size(), 2u);
  EXPECT_EQ(now.peers[0].peer, Rank(1));
  EXPECT_EQ(now.peers[0].waited, 15ms);
  EXPECT_EQ(now.peers[1].peer, Rank(2));
  EXPECT_EQ(now.peers[1].waited, 2ms);
}

}  // namespace
}  // namespace dunlin::flight::testing
