// Gathers and departures: what the ledger does for all ranks of a job at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/job_ledger.h"
#include "tests/runtime/bootstrap/coordinator_job.h"
#include "tests/runtime/bootstrap/ledger_test.h"

namespace dunlin::bootstrap {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Bytes record(std::uint8_t first, std::size_t size = 2) {
  Bytes bytes(size);
  bytes.front() = std::byte{first};
  return bytes;
}

class Gathering : public LedgerTest {
 protected:
  void gather(int rank, const std::string& name, const Bytes& value,
              const std::vector<Rank>& group = {}, Duration timeout = 1s) {
    const Message message{.type = MessageType::kGather,
                          .request = ++requests_,
                          .number = static_cast<std::uint64_t>(timeout.count()),
                          .text = name,
                          .value = value,
                          .ranks = group};
    EXPECT_TRUE(ledger_.receive(Rank(rank), message, now_).is_ok());
  }
  void contribute(int rank, const std::string& name, const Bytes& value) {
    const Message message{.type = MessageType::kGather, .text = name, .value = value};
    EXPECT_TRUE(ledger_.receive(Rank(rank), message, now_).is_ok());
  }
  Message only_reply(int rank) {
    const auto all = replies(rank);
    EXPECT_EQ(all.size(), 1U) << "rank " << rank;
    return all.empty() ? Message() : all.front();
  }
};

TEST_F(Gathering, AllGetTheRecordsInTheOrderOfTheirRanksFromOneCopy) {
  start();
  for (const int rank : {2, 0, 3}) gather(rank, "g", record(static_cast<std::uint8_t>(10 + rank)));
  EXPECT_THAT(sent_, IsEmpty());
  gather(1, "g", record(11));
  Bytes expected;
  for (std::uint8_t rank = 0; rank < kSize; ++rank) {
    const Bytes each = record(static_cast<std::uint8_t>(10 + rank));
    expected.insert(expected.end(), each.begin(), each.end());
  }
  for (int rank = 0; rank < kSize; ++rank) {
    const Message reply = only_reply(rank);
    EXPECT_EQ(reply.code, Code::kOk);
    ASSERT_NE(reply.shared_value, nullptr);
    EXPECT_EQ(*reply.shared_value, expected);
    EXPECT_EQ(reply.shared_value, replies(0).front().shared_value);
  }
}

TEST_F(Gathering, AGroupHasAnOrderOfItsOwn) {
  start();
  const std::vector group{Rank(3), Rank(1)};
  gather(1, "g", record(1), group);
  gather(3, "g", record(3), group);
  EXPECT_THAT(*only_reply(1).shared_value,
              ElementsAre(std::byte{3}, std::byte{0}, std::byte{1}, std::byte{0}));
  EXPECT_TRUE(replies(0).empty());
}

TEST_F(Gathering, ARankThatHasContributedNeedNotWait) {
  start();
  for (const int rank : {0, 1, 2}) contribute(rank, "g", record(1));
  EXPECT_THAT(sent_, IsEmpty());
  gather(3, "g", record(4));
  EXPECT_EQ(only_reply(3).code, Code::kOk);
  sent_.clear();
  // Who asks later gets the same, though its record is another one by now.
  gather(0, "g", record(9));
  EXPECT_EQ(only_reply(0).shared_value->front(), std::byte{1});
}

TEST_F(Gathering, TheDeadlineNamesTheMissingAndTheCallCanBeRepeated) {
  start();
  gather(0, "g", record(1));
  gather(2, "g", record(3), {}, 10s);
  advance(1s);
  EXPECT_EQ(only_reply(0).code, Code::kDeadlineExceeded);
  EXPECT_EQ(only_reply(0).text, "still missing: 1, 3");
  sent_.clear();
  for (const int rank : {0, 1, 3}) gather(rank, "g", record(1));
  for (int rank = 0; rank < kSize; ++rank) EXPECT_EQ(only_reply(rank).code, Code::kOk);
}

TEST_F(Gathering, ARankThatIsGoneFailsItAtOnceUnlessItHasContributed) {
  start();
  gather(0, "early", record(1));
  contribute(3, "late", record(4));
  ledger_.declare_dead(Rank(3), "killed");
  EXPECT_EQ(only_reply(0).code, Code::kPeerDead);
  EXPECT_EQ(only_reply(0).subject, Rank(3));
  EXPECT_EQ(only_reply(0).text, "rank 3 has not called it and is dead");
  sent_.clear();
  gather(1, "early", record(1));
  EXPECT_EQ(only_reply(1).code, Code::kPeerDead);
  sent_.clear();
  for (const int rank : {0, 1, 2}) gather(rank, "late", record(1));
  for (const int rank : {0, 1, 2}) EXPECT_EQ(only_reply(rank).code, Code::kOk);
}

TEST_F(Gathering, CallsThatDoNotMatchAreRefused) {
  start();
  gather(0, "g", record(1));
  gather(1, "g", record(1, 3));
  EXPECT_EQ(only_reply(1).code, Code::kInvalidArgument);
  EXPECT_EQ(
      only_reply(1).text,
      "gather 'g': rank 1 passes 3 bytes in the whole job, rank 0 passed 2 bytes in the whole "
      "job");
  gather(2, "g", record(1), {Rank(2), Rank(0)});
  EXPECT_THAT(only_reply(2).text, HasSubstr("2 bytes in the group 2, 0, rank 0 passed 2 bytes in"));
  gather(3, "h", record(1), {Rank(0), Rank(1)});
  EXPECT_THAT(only_reply(3).text, HasSubstr("rank 3 does not belong to the group"));
  sent_.clear();
  gather(3, "h", record(1), {Rank(3), Rank(3)});
  EXPECT_THAT(only_reply(3).text, HasSubstr("names a rank twice"));
  sent_.clear();
  gather(3, "h", record(1), {Rank(3), Rank(kSize)});
  EXPECT_THAT(only_reply(3).text, HasSubstr("names a rank that the job does not have"));
  sent_.clear();
  gather(3, "h", record(1, kMaxValueBytes / kSize + 1));
  EXPECT_THAT(only_reply(3).text, HasSubstr("are more than"));
  // None of them has left anything behind, nor does a refusal count as something that is kept.
  // The message is made once, as a copy of its value takes far longer than a refusal.
  Message refused{.type = MessageType::kGather,
                  .number = static_cast<std::uint64_t>(Duration(1s).count()),
                  .text = "h",
                  .value = record(1, kMaxValueBytes / kSize + 1)};
  for (std::size_t i = 0; i < kMaxKeptKeys + kMaxKeptKeysPerPeer * kSize; ++i) {
    refused.request = ++requests_;
    EXPECT_TRUE(ledger_.receive(Rank(3), refused, now_).is_ok());
  }
  sent_.clear();
  for (const int rank : {0, 1, 2, 3}) gather(rank, "h", record(1));
  EXPECT_EQ(only_reply(3).code, Code::kOk);
}

TEST_F(Gathering, ACanceledRequestIsNotAnsweredAndItsRecordStays) {
  start();
  gather(0, "g", record(1));
  EXPECT_TRUE(
      ledger_.receive(Rank(0), {.type = MessageType::kCancel, .request = requests_}, now_).is_ok());
  for (const int rank : {1, 2, 3}) gather(rank, "g", record(1));
  EXPECT_TRUE(replies(0).empty());
  EXPECT_EQ(only_reply(1).code, Code::kOk);
}

class Departures : public LedgerTest {
 protected:
  void leave(int rank) { ask(rank, MessageType::kLeave, "", 0s); }
};

TEST_F(Departures, ThoseInQuickSuccessionAreToldTogether) {
  start();
  leave(0);
  EXPECT_THAT(notices(3), ElementsAre("0 left"));
  EXPECT_EQ(replies(0).size(), 1U);
  leave(1);
  leave(2);
  EXPECT_THAT(notices(3), ElementsAre("0 left"));
  EXPECT_TRUE(replies(1).empty()) << "the notice is first";
  EXPECT_LE(ledger_.next_tick(now_) - now_, kSize * kDepartureInterval);
  advance(kSize * kDepartureInterval);
  EXPECT_THAT(notices(3), ElementsAre("0 left", "1 left", "2 left"));
  EXPECT_EQ(replies(1).size(), 1U);
  EXPECT_EQ(replies(2).size(), 1U);
  const auto to_3 = std::ranges::count_if(sent_, [](const auto& each) {
    return each.first == Rank(3) && each.second.type == MessageType::kNotice;
  });
  EXPECT_EQ(to_3, 2);
}

TEST_F(Departures, WhatFollowsFromOneIsToldAfterIt) {
  start();
  ask(3, MessageType::kLookup, "key", 10s, Rank(1));
  leave(0);
  sent_.clear();
  leave(1);
  ASSERT_THAT(notices(3), ElementsAre("1 left"));
  EXPECT_EQ(replies(3).at(0).code, Code::kPeerDead);
  EXPECT_EQ(sent_.front().second.type, MessageType::kNotice);
}

// A heartbeat that crosses the answer to a departure has a number of its own, which may be that of
// the request.
TEST_F(Departures, AHeartbeatMeanwhileIsNoRequest) {
  start();
  leave(0);
  leave(1);
  sent_.clear();
  EXPECT_TRUE(
      ledger_.receive(Rank(1), {.type = MessageType::kHeartbeat, .request = requests_}, now_)
          .is_ok());
  EXPECT_THAT(sent_, IsEmpty());
}

TEST_F(Departures, RanksThatDieTogetherAreNotToldOfOneAnother) {
  start();
  ledger_.declare_dead({{Rank(1), "killed"}, {Rank(2), "killed"}, {Rank(1), "twice"}});
  EXPECT_THAT(notices(0), ElementsAre("1 dead", "2 dead"));
  EXPECT_THAT(notices(1), ElementsAre("1 dead")) << "itself only";
  EXPECT_THAT(notices(2), ElementsAre("2 dead"));
}

// Nothing calls tick() in such a job.
TEST(InProcessDepartures, AreToldWithoutATick) {
  InProcessJob job(1000);
  const auto stays = job.bootstrap(Rank(0));
  auto first = job.bootstrap(Rank(1));
  auto second = job.bootstrap(Rank(2));
  first.reset();
  second.reset();
  EXPECT_FALSE(stays->peers().is_present(Rank(1)));
  EXPECT_FALSE(stays->peers().is_present(Rank(2)));
}

// The real coordinator and a client for each rank.
TEST(Coordinator, ServesTheGathersOfManyRanks) {
  constexpr int kRanks = 64;
  const auto coordinator = start_coordinator(kRanks);
  std::atomic<int> right{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto job = TcpBootstrap::join(plan_for(*coordinator, rank, kRanks)).value();
      const Bytes own = ByteWriter().number(std::int32_t{rank * 3}).take();
      for (const char* const name : {"first", "second"}) {
        const Bytes all = job->gather(name, {}, own, kTimeout).value();
        ByteReader reader(all);
        bool is_right = true;
        for (int other = 0; other < kRanks; ++other)
          is_right = reader.number<std::int32_t>() == other * 3 && is_right;
        if (is_right && reader.at_end()) ++right;
      }
      const std::vector pair{Rank(rank ^ 1), Rank(rank)};
      const std::vector sorted{std::min(pair[0], pair[1]), std::max(pair[0], pair[1])};
      const std::string name = "pair " + std::to_string(rank / 2);
      if (job->gather(name, sorted, own, kTimeout).value().size() == 2 * own.size()) ++right;
    });
  }
  for (std::thread& each : ranks) each.join();
  EXPECT_EQ(right, 3 * kRanks);
}

}  // namespace
}  // namespace dunlin::bootstrap
