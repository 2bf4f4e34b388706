// A job of 16,384 ranks at the real ledger of the coordinator, whose clients are simulated: what
// its start and its end cost in messages and bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/bootstrap/job_ledger.h"

namespace dunlin::bootstrap {
namespace {

using namespace std::chrono_literals;

class LargeJob : public ::testing::Test {
 protected:
  static constexpr int kRanks = 16384;
  static constexpr std::uint64_t kTimeout = 60'000'000'000;  // ns
  // What a rank's fabric publishes for those that speak to it.
  static constexpr std::size_t kAddressBytes = 300;

  struct Received {
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
    std::size_t departures = 0;  // that it was told of
  };

  LargeJob() : received_(kRanks) {}

  void tell(int rank, Message message) {
    ASSERT_TRUE(ledger_.receive(Rank(rank), message, now_).is_ok());
  }
  void join_all() {
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_TRUE(ledger_.admit(Rank(rank), now_).is_ok());
      tell(rank, {.type = MessageType::kJoin, .request = 1, .number = kTimeout});
    }
  }
  void gather(const std::string& name, const Bytes& record) {
    for (int rank = 0; rank < kRanks; ++rank) {
      tell(rank, {.type = MessageType::kGather,
                  .request = ++requests_,
                  .number = kTimeout,
                  .text = name,
                  .value = record});
    }
  }
  void on_sent(Rank to, const Message& message) {
    Received& at = received_[to.index()];
    ++at.messages;
    at.bytes += kHeaderBytes + message.text.size() + message.value.size() +
                (message.shared_value ? message.shared_value->size() : 0) +
                message.ranks.size() * sizeof(std::int32_t);
    if (message.type == MessageType::kReply && message.code != Code::kOk) ++failures_;
    if (message.type == MessageType::kNotice) at.departures += message.ranks.size();
  }
  Received most() const {
    Received most;
    for (const Received& each : received_) {
      most.messages = std::max(most.messages, each.messages);
      most.bytes = std::max(most.bytes, each.bytes);
    }
    return most;
  }

  TimePoint now_{};
  std::uint64_t requests_ = 1;
  std::uint64_t failures_ = 0;
  std::vector<Received> received_;
  JobLedger ledger_{
      {kRanks, kRanks}, 0s, [this](Rank to, const Message& message) { on_sent(to, message); }};
};

// Ranks join, make a communicator of all, and connect to their neighbors in an exponential graph.
TEST_F(LargeJob, StartsWith16BytesPerRankAndPeer) {
  join_all();
  gather("communicator/world/offer", Bytes(16));
  EXPECT_EQ(most().messages, 2U);
  for (int rank = 0; rank < kRanks; ++rank) {
    tell(rank, {.type = MessageType::kPublish,
                .text = Bootstrap::key_of("fabric/address", Rank(rank)),
                .value = Bytes(kAddressBytes)});
  }
  constexpr std::size_t kNeighbors = 27;  // at 1, 2, 4, ... in either direction; two are the same
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<Rank> asked;
    for (int distance = 1; distance < kRanks; distance *= 2) {
      asked.emplace_back((rank + distance) % kRanks);
      if (2 * distance != kRanks) asked.emplace_back((rank + kRanks - distance) % kRanks);
    }
    ASSERT_EQ(asked.size(), kNeighbors);
    tell(rank, {.type = MessageType::kLookup,
                .request = ++requests_,
                .number = kTimeout,
                .text = "fabric/address",
                .ranks = asked});
  }
  EXPECT_EQ(failures_, 0U);
  EXPECT_EQ(most().messages, 3U) << "the look-ups of all neighbors are one";
  EXPECT_GE(most().bytes, 16U * kRanks);
  EXPECT_LE(most().bytes, 16U * kRanks + (kAddressBytes + 8) * kNeighbors + 1000);
}

// Each rank is told of all others, in far fewer messages than there are pairs.
TEST_F(LargeJob, EndsWithFewNoticesForEachRank) {
  join_all();
  // They end one after another in 0.8 s.
  for (int rank = 0; rank < kRanks; ++rank) {
    now_ += 50us;
    ledger_.tick(now_);
    tell(rank, {.type = MessageType::kLeave, .request = 2});
  }
  ledger_.tell_departures();
  EXPECT_EQ(ledger_.active(), 0);
  EXPECT_EQ(failures_, 0U);
  EXPECT_LT(most().messages, 10U);
  EXPECT_GT(received_.back().departures, std::size_t{kRanks} / 2)
      << "a rank is told of all in the notices before its end";
  std::uint64_t told = 0;
  for (const Received& each : received_) told += each.departures;
  EXPECT_GT(told, std::uint64_t{kRanks} * kRanks / 4);
}

}  // namespace
}  // namespace dunlin::bootstrap
