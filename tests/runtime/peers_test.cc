#include "runtime/peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace dunlin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PeerTable, AllRanksAreAliveAtFirst) {
  const PeerTable peers(3);
  EXPECT_EQ(peers.size(), 3);
  EXPECT_EQ(peers.state(Rank(2)), PeerState::kAlive);
  EXPECT_TRUE(peers.check(Rank(2)).is_ok());
  EXPECT_EQ(peers.describe(Rank(2)), "alive");
}

TEST(PeerTable, TheFirstDeathStays) {
  PeerTable peers(2);
  peers.mark(Rank(1), PeerState::kDead, "process 4711 ended");
  const auto version = peers.version();
  peers.mark(Rank(1), PeerState::kAlive, "heard from again");
  peers.mark(Rank(1), PeerState::kLeft, "it has shut down");
  EXPECT_EQ(peers.version(), version);
  EXPECT_EQ(peers.describe(Rank(1)), "dead: process 4711 ended");
  EXPECT_FALSE(peers.is_present(Rank(1)));
  EXPECT_EQ(peers.check(Rank(1)).to_string(),
            "peer_dead: rank 1 is dead: process 4711 ended (rank 1)");
}

TEST(PeerTable, ARankThatLeftDoesNotDie) {
  PeerTable peers(2);
  peers.mark(Rank(1), PeerState::kLeft, "it has shut down");
  peers.mark(Rank(1), PeerState::kDead, "process ended");
  EXPECT_EQ(peers.state(Rank(1)), PeerState::kLeft);
  EXPECT_EQ(peers.check(Rank(1)).code(), Code::kPeerDead);
}

TEST(PeerTable, StalledPeersArePresentAndMayRecover) {
  PeerTable peers(2);
  peers.mark(Rank(0), PeerState::kStalled, "silent");
  EXPECT_TRUE(peers.check(Rank(0)).is_ok());
  peers.mark(Rank(0), PeerState::kAlive, "");
  EXPECT_EQ(peers.describe(Rank(0)), "alive");
}

TEST(PeerTable, ListenersAreCalledOncePerChange) {
  PeerTable peers(5);
  int calls = 0;
  const int number = peers.add_listener([&] { ++calls; });
  peers.mark(Rank(2), PeerState::kStalled, "");
  peers.mark(Rank(2), PeerState::kStalled, "");
  peers.mark(Rank(1), PeerState::kDead, "");
  EXPECT_EQ(calls, 2);
  peers.set_local_pid(Rank(0), getpid());
  EXPECT_EQ(calls, 3);
  peers.mark_left(std::vector{Rank(3), Rank(4), Rank(1)});
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(peers.describe(Rank(3)), "left: it has shut down");
  EXPECT_EQ(peers.describe(Rank(1)), "dead");
  peers.remove_listener(number);
  peers.mark(Rank(0), PeerState::kDead, "");
  EXPECT_EQ(calls, 4);
}

TEST(PeerTable, KnowsWhetherAnybodyIsGone) {
  PeerTable peers(3);
  peers.mark(Rank(0), PeerState::kStalled, "");
  EXPECT_FALSE(peers.is_anybody_gone());
  peers.mark_left(std::vector{Rank(1)});
  EXPECT_TRUE(peers.is_anybody_gone());
}

TEST(PeerTable, DiagnosesLocalProcesses) {
  PeerTable peers(2);
  EXPECT_EQ(peers.diagnose(Rank(0)), "");
  peers.set_local_pid(Rank(0), getpid());
  EXPECT_THAT(peers.diagnose(Rank(0)), HasSubstr("is running"));

  const pid_t child = fork();
  if (child == 0) {
    raise(SIGSTOP);
    _exit(0);
  }
  peers.set_local_pid(Rank(1), child);
  waitpid(child, nullptr, WUNTRACED);
  EXPECT_THAT(peers.diagnose(Rank(1)), HasSubstr("is stopped (state T)"));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_THAT(peers.diagnose(Rank(1)), HasSubstr("has ended"));
}

TEST(PeerTable, SeesTheEndOfAProcessInAnotherPidNamespace) {
  PeerTable peers(2);
  EXPECT_FALSE(peers.foreign_process(Rank(1)).is_open());
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  const auto version = peers.pids_version();
  peers.set_foreign_process(Rank(1), Fd(static_cast<int>(syscall(SYS_pidfd_open, child, 0))));
  EXPECT_NE(peers.pids_version(), version);
  EXPECT_EQ(peers.local_pid(Rank(1)), PeerTable::kForeignPid);
  EXPECT_TRUE(peers.foreign_process(Rank(1)).is_open());
  EXPECT_FALSE(peers.has_ended(Rank(1)));
  EXPECT_EQ(peers.diagnose(Rank(1)), "");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(peers.has_ended(Rank(1)));
  EXPECT_THAT(peers.diagnose(Rank(1)), HasSubstr("has ended"));
}

}  // namespace
}  // namespace dunlin
