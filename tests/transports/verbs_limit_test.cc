// More peers than connections, on real devices. Needs RDMA devices: run in guests.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/transports/many_peers.h"

namespace dunlin::testing {
namespace {

using transport::Fabric;

constexpr int kRanks = 8;
constexpr int kMost = 6;

// The RC queue pairs of this process, which the kernel lists with the threads that made them. More
// than any limit if the list cannot be had.
int queue_pairs() {
  int count = 0;
  std::FILE* const list = popen("rdma resource show qp", "r");
  if (list == nullptr) {
    ADD_FAILURE() << "popen: " << std::strerror(errno);
    return INT_MAX;
  }
  std::array<char, 512> line;
  while (std::fgets(line.data(), line.size(), list) != nullptr) {
    const std::string text = line.data();
    const std::size_t at = text.find(" pid ");
    if (at == std::string::npos || text.find(" type RC ") == std::string::npos) continue;
    const std::string thread = text.substr(at + 5, text.find(' ', at + 5) - at - 5);
    if (std::filesystem::exists("/proc/self/task/" + thread)) ++count;
  }
  if (pclose(list) == 0) return count;
  ADD_FAILURE() << "the program rdma of iproute2 is missing, or it has failed";
  return INT_MAX;
}

// Waits until this process has at most that many. Counting starts a program, so it is done now and
// then only.
bool await_queue_pairs(Fabric& fabric, int most) {
  constexpr int kTurnsPerCount = 1000;
  int turns = 0;
  return progress_until(fabric,
                        [&] { return turns++ % kTurnsPerCount == 0 && queue_pairs() <= most; });
}

RunOptions options(PeerKind kind, std::set<int> killed = {}) {
  return {
      .kind = kind, .size = kRanks, .killed = std::move(killed), .configure = [](Config& config) {
        config.verbs_max_connections = kMost;
      }};
}

class VerbsLimitTest : public OverPeers {};

TEST_P(VerbsLimitTest, EveryPeerIsSpokenTo) {
  run_ranks(options(GetParam()), [](Fabric& fabric) {
    constexpr std::uint64_t kRounds = 2;
    ManyPeers peers(fabric, "peers");
    for (std::uint64_t number = 1; number <= kRounds; ++number) peers.round(number);
    sync(fabric, "rounds");
    EXPECT_EQ(peers.additions(), kRounds * kRanks);
    EXPECT_GT(queue_pairs(), 0);
    const int most = GetParam() == PeerKind::kProcesses ? kMost : kMost * kRanks;
    EXPECT_TRUE(await_queue_pairs(fabric, most));
    sync(fabric, "few");
  });
}

// No connection tells of this death.
TEST(VerbsLimitDeathTest, ADeathBehindAConnectionThatWasGivenUpIsNoticed) {
  run_ranks(options(PeerKind::kProcesses, {1}), [](Fabric& fabric) {
    Exposed memory(fabric, "memory", 64, kRanks);
    const auto flush = [&](int peer) {
      return complete(fabric, [&](auto* c) {
        return memory.data(peer).flush(transport::Visibility::kRemote, c);
      });
    };
    if (fabric.rank() == Rank(0)) {
      for (int peer = 1; peer < kRanks; ++peer) EXPECT_TRUE(flush(peer).is_ok());
    }
    sync(fabric, "spoken");
    if (fabric.rank() == Rank(0)) {
      EXPECT_GT(queue_pairs(), 0);
      EXPECT_TRUE(await_queue_pairs(fabric, kMost / 2));
    }
    sync(fabric, "given up");
    if (fabric.rank() == Rank(1)) (void)std::raise(SIGKILL);
    if (fabric.rank() == Rank(0)) {
      const Status status = fabric.wait(
          [&]() -> Status {
            return fabric.board().sequence(memory.cell(1)) == 0 ? Status::busy() : Status::ok();
          },
          [] {
            return std::vector<transport::Awaited>{{Rank(1), "a word"}};
          },
          timeout_factor() * std::chrono::seconds(30));
      EXPECT_EQ(status.code(), Code::kPeerDead) << status.to_string();
      EXPECT_EQ(status.peer(), Rank(1));
      const Status posted = flush(1);
      EXPECT_EQ(posted.code(), Code::kPeerDead) << posted.to_string();
      // The others are spoken to as before.
      for (int peer = 2; peer < kRanks; ++peer) EXPECT_TRUE(flush(peer).is_ok());
    }
    sync(fabric, "done");
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, VerbsLimitTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& one) { return to_string(one.param); });

}  // namespace
}  // namespace dunlin::testing
