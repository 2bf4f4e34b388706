// When a rank without a connection is dead, in made-up time; and the witnesses of a process.
#include "runtime/bootstrap/absences.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <vector>

#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/life_watch.h"
#include "runtime/bootstrap/net.h"
#include "runtime/bootstrap/session.h"
#include "runtime/bootstrap/witness.h"

namespace dunlin::bootstrap {
namespace {

using namespace std::chrono_literals;

constexpr Duration kGrace = 30s;
constexpr Rank kRank{3};

class AbsencesTest : public ::testing::Test {
 protected:
  // Expects that the rank is dead from then on and not before.
  void expect_dead_at(TimePoint when, const std::string& reason) {
    EXPECT_EQ(absences.next(TimePoint::max()), when);
    EXPECT_TRUE(absences.take_due(when - 1ns).empty());
    const auto verdicts = absences.take_due(when);
    ASSERT_EQ(verdicts.size(), 1U);
    EXPECT_EQ(verdicts[0].rank, kRank);
    EXPECT_EQ(verdicts[0].reason, reason);
    EXPECT_TRUE(absences.take_due(when + 10 * kGrace).empty());
  }
  void expect_never_dead() {
    EXPECT_EQ(absences.next(TimePoint::max()), TimePoint::max());
    EXPECT_TRUE(absences.take_due(now + 1000 * kGrace).empty());
  }

  const TimePoint now = TimePoint() + 100s;
  Absences absences{kGrace};
};

TEST_F(AbsencesTest, ABrokenConnectionIsAnOutage) {
  absences.begin(kRank, ConnectionEnd::kBroken, now);
  expect_dead_at(now + kGrace, "it has had no connection for 30.0 s");
}

TEST_F(AbsencesTest, ARankThatIsBackIsNotDead) {
  absences.begin(kRank, ConnectionEnd::kBroken, now);
  absences.end(kRank);
  expect_never_dead();
  absences.begin(kRank, ConnectionEnd::kClosed, now + kGrace);
  absences.end(kRank);
  expect_never_dead();
}

TEST_F(AbsencesTest, AFinIsTheEndOfAProcessThatDoesNotComeBack) {
  absences.begin(kRank, ConnectionEnd::kClosed, now);
  expect_dead_at(now + kConfirmTime, "its connection ended before it left the job");
}

TEST_F(AbsencesTest, ANeighborRefutesAFin) {
  absences.begin(kRank, ConnectionEnd::kClosed, now);
  absences.note_alive(kRank);
  expect_dead_at(now + kGrace, "it has had no connection for 30.0 s");
}

TEST_F(AbsencesTest, AProcessThatCanBeSeenIsDeadOnlyWhenItHasEnded) {
  absences.note_visible(kRank);
  absences.begin(kRank, ConnectionEnd::kClosed, now);
  expect_never_dead();
  absences.note_ended(kRank, "process 17 ended", now + 5 * kGrace);
  expect_dead_at(now + 5 * kGrace + kLeaveGrace, "process 17 ended");
}

TEST_F(AbsencesTest, AnEndIsTheEndEvenWithAConnection) {
  absences.note_ended(kRank, "process 17 ended", now);
  expect_dead_at(now + kLeaveGrace, "process 17 ended");
}

TEST_F(AbsencesTest, ARankThatHasLeftIsForgotten) {
  absences.note_ended(kRank, "process 17 ended", now);
  absences.forget(kRank);
  expect_never_dead();
}

TEST(Session, KeepsWhatTheOtherSideLacks) {
  Session session;
  for (std::uint64_t number = 1; number <= 5; ++number)
    ASSERT_TRUE(session.keep({.number = number}, 1 << 20).is_ok());
  ASSERT_TRUE(session.acknowledge(2).is_ok());
  ASSERT_TRUE(session.acknowledge(2).is_ok());
  ASSERT_EQ(session.kept().size(), 3U);
  EXPECT_EQ(session.kept().front().number, 3U);
  EXPECT_EQ(session.acknowledge(1).code(), Code::kCorrupted);
  EXPECT_EQ(session.acknowledge(6).code(), Code::kCorrupted);
  ASSERT_TRUE(session.acknowledge(5).is_ok());
  EXPECT_TRUE(session.kept().empty());
}

TEST(Session, KeepsNoMoreThanItMay) {
  Session session;
  const Message large{.value = Bytes(1000)};
  ASSERT_TRUE(session.keep(large, 2000).is_ok());
  EXPECT_EQ(session.keep(large, 2000).code(), Code::kResourceExhausted);
  ASSERT_TRUE(session.acknowledge(1).is_ok());
  EXPECT_TRUE(session.keep(large, 2000).is_ok());
}

TEST(Session, SendsNoRequestAgainThatWasGivenUp) {
  Session session;
  const auto keep = [&](std::uint64_t request) {
    return session.keep({.type = MessageType::kPublish, .request = request, .value = Bytes(1000)},
                        3000);
  };
  ASSERT_TRUE(keep(1).is_ok());
  ASSERT_TRUE(keep(2).is_ok());
  ASSERT_FALSE(keep(3).is_ok());
  session.withdraw(1);
  ASSERT_TRUE(keep(3).is_ok()) << "what was given up takes no room";
  ASSERT_EQ(session.kept().size(), 3U) << "the count stays";
  EXPECT_EQ(session.kept()[0].type, MessageType::kCancel);
  EXPECT_TRUE(session.kept()[0].value.empty());
  EXPECT_EQ(session.kept()[1].type, MessageType::kPublish);
  EXPECT_TRUE(session.acknowledge(3).is_ok());
}

TEST(Session, WantsToTellBeforeMuchIsKept) {
  Session session;
  EXPECT_FALSE(session.is_telling_due());
  session.note_received({.value = Bytes(1 << 20)});
  EXPECT_TRUE(session.is_telling_due());
  session.note_told();
  EXPECT_FALSE(session.is_telling_due());
  EXPECT_EQ(session.received(), 1U);
}

// Ranks 0 to 2 on a host that the coordinator cannot see into, rank 3 on another one.
class LifeWatchTest : public ::testing::Test {
 protected:
  LifeWatchTest() {
    for (int rank = 0; rank < 4; ++rank)
      lives.add(Rank(rank), {rank < 3 ? "another host" : "a third host", 100 + rank, 1}, now);
  }
  // Runs like the coordinator, which looks when it is asked to.
  void run_until(TimePoint end) {
    while (now < end) {
      now = std::min(lives.next(end), end);
      ASSERT_TRUE(lives.take_due(now).empty());
    }
  }
  std::vector<Rank> take_asked() { return std::exchange(asked, {}); }

  TimePoint now = TimePoint() + 100s;
  std::vector<Rank> asked;
  LifeWatch lives{kGrace, [this](Rank to, const Message& message) {
                    EXPECT_EQ(message.type, MessageType::kInquire);
                    asked.push_back(to);
                  }};
};

TEST_F(LifeWatchTest, TheTimeOfAStoppedCoordinatorDoesNotCount) {
  (void)lives.take_due(now);
  lives.lose(Rank(0), ConnectionEnd::kBroken, now);
  run_until(now + kGrace - 1s);
  lives.lose(Rank(1), ConnectionEnd::kClosed, now);
  now += 10 * kGrace;
  EXPECT_TRUE(lives.take_due(now).empty());
  run_until(now + kConfirmTime - 1ns);
  const auto closed = lives.take_due(now += 1ns);
  ASSERT_EQ(closed.size(), 1U);
  EXPECT_EQ(closed[0].rank, Rank(1));
  run_until(now - kConfirmTime + 1s - 1ns);
  const auto broken = lives.take_due(now += 1ns);
  ASSERT_EQ(broken.size(), 1U);
  EXPECT_EQ(broken[0].rank, Rank(0));
}

TEST_F(LifeWatchTest, ANeighborThatComesBackIsAsked) {
  for (const int rank : {0, 1, 2}) lives.lose(Rank(rank), ConnectionEnd::kBroken, now);
  (void)take_asked();
  lives.regain(Rank(1));
  EXPECT_EQ(take_asked(), std::vector{Rank(1)}) << "about rank 2; about rank 0, it was before";
  lives.testify(Rank(1), {.state = PeerState::kDead, .subject = Rank(0)}, now);
  EXPECT_EQ(lives.take_due(now + kLeaveGrace).size(), 1U);
}

TEST_F(LifeWatchTest, AnotherNeighborIsAskedWhenOneIsGone) {
  lives.add(Rank(4), {"another host", 104, 1}, now);
  lives.lose(Rank(0), ConnectionEnd::kBroken, now);
  EXPECT_EQ(take_asked(), (std::vector{Rank(1), Rank(2)}));
  lives.remove(Rank(1));
  EXPECT_EQ(take_asked(), std::vector{Rank(4)}) << "rank 2 was asked before";
  lives.remove(Rank(3));
  EXPECT_TRUE(take_asked().empty()) << "it is on another host";
}

// All ranks of a large host lose their connections one after the other, and come back. What is sent
// to a rank meanwhile is kept for it, and there is a limit to that.
TEST_F(LifeWatchTest, AnOutageOfAHostAsksFewQuestions) {
  constexpr int kRanks = 300;
  for (int rank = 10; rank < 10 + kRanks; ++rank)
    lives.add(Rank(rank), {"a large host", 1000 + rank, 1}, now);
  std::map<Rank, std::size_t> questions;
  const auto count = [&] {
    for (const Rank rank : take_asked()) ++questions[rank];
  };
  for (int rank = 10 + kRanks - 1; rank >= 10; --rank) {
    lives.lose(Rank(rank), ConnectionEnd::kBroken, now);
    count();
  }
  for (int rank = 10 + kRanks - 1; rank >= 10; --rank) {
    lives.regain(Rank(rank));
    count();
  }
  for (const auto& [rank, number] : questions) EXPECT_LE(number, 2 * kRanks) << rank.value();
}

// A coordinator that sees neither process, and a neighbor that sees the one that ends.
TEST(Witnesses, ANeighborTellsOfTheEndOfAProcess) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  ProcessId process = ProcessId::of_self();
  process.pid = child;
  process.start_time = 0;
  const ProcessWatch probe = watch_process(process);
  EXPECT_EQ(probe.state, ProcessWatch::State::kEnded) << "another start time: another process";

  const TimePoint now{};
  std::vector<Message> testimonies;
  Witness witness([&](const Message& message) { testimonies.push_back(message); });
  // The child's own name.
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t named = fork();
  if (named == 0) {
    const std::string name = ProcessId::of_self().to_string();
    (void)!write(ends[1], name.data(), name.size());
    pause();
    _exit(0);
  }
  char name[256] = {};
  ASSERT_GT(read(ends[0], name, sizeof name - 1), 0);

  witness.take({.type = MessageType::kInquire, .subject = Rank(1), .text = name});
  ASSERT_EQ(testimonies.size(), 1U);
  EXPECT_EQ(testimonies[0].state, PeerState::kAlive);

  // Now the coordinator is elsewhere. Both ranks seem to be on one host, whose processes it cannot
  // see.
  const auto elsewhere = [](ProcessId id) {
    id.space = "another host";
    return id;
  };
  std::vector<Rank> asked;
  LifeWatch lives(kGrace, [&](Rank to, const Message& message) {
    EXPECT_EQ(message.type, MessageType::kInquire);
    asked.push_back(to);
  });
  lives.add(Rank(0), elsewhere(ProcessId::of_self()), now);
  lives.add(Rank(1), elsewhere(ProcessId::parse(name).value()), now);
  lives.add(Rank(2), {"a third host", 1, 1}, now);
  lives.lose(Rank(1), ConnectionEnd::kClosed, now);
  EXPECT_EQ(asked, std::vector<Rank>{Rank(0)});
  lives.testify(Rank(0), testimonies[0], now);
  EXPECT_TRUE(lives.take_due(now + kConfirmTime).empty()) << "the process lives";

  kill(named, SIGKILL);
  std::vector<pollfd> entries;
  witness.append_to(entries);
  ASSERT_EQ(entries.size(), 1U);
  ASSERT_EQ(poll(entries.data(), entries.size(), 20'000), 1);
  witness.note(entries.data());
  ASSERT_EQ(testimonies.size(), 2U);
  EXPECT_EQ(testimonies[1].state, PeerState::kDead);
  lives.testify(Rank(2), testimonies[1], now);
  EXPECT_TRUE(lives.take_due(now + kConfirmTime).empty()) << "rank 2 is on another host";
  lives.testify(Rank(0), testimonies[1], now);
  EXPECT_EQ(lives.take_due(now + kLeaveGrace).size(), 1U);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  waitpid(named, nullptr, 0);
}

}  // namespace
}  // namespace dunlin::bootstrap
