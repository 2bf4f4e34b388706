#include "runtime/bootstrap/job_ledger.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/bootstrap/constants.h"
#include "tests/runtime/bootstrap/ledger_test.h"

namespace dunlin::bootstrap {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Job : public LedgerTest {};

TEST_F(Job, StartsWhenTheLastHasJoined) {
  admit_all();
  for (int rank = 0; rank < kSize - 1; ++rank) ask(rank, MessageType::kJoin, "", 1s);
  EXPECT_TRUE(sent_.empty());
  ask(kSize - 1, MessageType::kJoin, "", 1s);
  for (int rank = 0; rank < kSize; ++rank) {
    ASSERT_EQ(replies(rank).size(), 1U);
    EXPECT_EQ(replies(rank)[0].code, Code::kOk);
  }
}

TEST_F(Job, TellsRanksWhoseKernelRunsOthersInOtherPidNamespaces) {
  const std::string spaces[kSize] = {"kernel-a-1", "kernel-a-2", "kernel-b-1", "kernel-b-1"};
  for (int rank = 0; rank < kSize; ++rank)
    ASSERT_TRUE(ledger_.admit(Rank(rank), now_, {spaces[rank], 1, 1}).is_ok());
  for (int rank = 0; rank < kSize; ++rank) ask(rank, MessageType::kJoin, "", 1s);
  for (int rank = 0; rank < kSize; ++rank) {
    ASSERT_EQ(replies(rank).size(), 1U);
    EXPECT_EQ(replies(rank)[0].value.size(), rank < 2 ? 1U : 0U) << rank;
  }
}

TEST_F(Job, TheDeadlineOfTheStartNamesTheMissingRanksToAll) {
  for (const int rank : {0, 2}) {
    ASSERT_TRUE(ledger_.admit(Rank(rank), now_).is_ok());
    ask(rank, MessageType::kJoin, "", rank == 0 ? 1s : 5s);
  }
  advance(1s);
  for (const int rank : {0, 2}) {
    ASSERT_EQ(replies(rank).size(), 1U);
    EXPECT_EQ(replies(rank)[0].code, Code::kDeadlineExceeded);
    EXPECT_EQ(replies(rank)[0].text, "2 of 4 ranks have not joined in time: 1, 3");
  }
  EXPECT_THAT(ledger_.admit(Rank(1), now_).to_string(), HasSubstr("failed to start"));
}

TEST_F(Job, ADeathBeforeTheStartFailsIt) {
  ASSERT_TRUE(ledger_.admit(Rank(0), now_).is_ok());
  ask(0, MessageType::kJoin, "", 1s);
  ledger_.declare_dead(Rank(3), "process 17 exited with code 1");
  ASSERT_EQ(replies(0).size(), 1U);
  EXPECT_EQ(replies(0)[0].code, Code::kPeerDead);
  EXPECT_THAT(replies(0)[0].text, HasSubstr("rank 3 ended before all ranks had joined"));
}

TEST_F(Job, AStalledRankIsStillActive) {
  start();
  EXPECT_EQ(ledger_.active(), kSize);
  for (int i = 0; i < kStallPeriods; ++i) advance(kHeartbeat);
  ASSERT_EQ(ledger_.state(Rank(0)), PeerState::kStalled);
  EXPECT_EQ(ledger_.active(), kSize) << "it may come back, and needs the coordinator then";
  ledger_.declare_dead(Rank(0), "killed");
  EXPECT_EQ(ledger_.active(), kSize - 1);
}

TEST_F(Job, RefusesStrangeAndRepeatedRanks) {
  admit_all();
  EXPECT_EQ(ledger_.admit(Rank(1), now_).code(), Code::kAlreadyExists);
  EXPECT_EQ(ledger_.admit(Rank(4), now_).code(), Code::kOutOfRange);
  EXPECT_EQ(ledger_.admit(Rank(-1), now_).code(), Code::kOutOfRange);
}

TEST_F(Job, LookupsWaitForTheirKey) {
  start();
  ask(0, MessageType::kLookup, "key", 1s);
  ask(1, MessageType::kLookup, "other", 1s);
  const Message publish{
      .type = MessageType::kPublish, .request = 77, .text = "key", .value = {std::byte{5}}};
  ASSERT_TRUE(ledger_.receive(Rank(2), publish, now_).is_ok());
  EXPECT_EQ(replies(0).at(0).value, Bytes{std::byte{5}});
  EXPECT_TRUE(replies(1).empty());
  ASSERT_TRUE(ledger_.receive(Rank(3), publish, now_).is_ok());
  EXPECT_EQ(replies(3).at(0).code, Code::kAlreadyExists);
  advance(1s);
  EXPECT_EQ(replies(1).at(0).code, Code::kDeadlineExceeded);
  EXPECT_EQ(replies(1).at(0).text, "no rank has published 'other'");
}

TEST_F(Job, ACanceledRequestTakesNoEffect) {
  start();
  for (const MessageType type : {MessageType::kBarrier, MessageType::kReform}) {
    const std::string name = type == MessageType::kBarrier ? "name" : "";
    ask(0, type, name, 20s);
    const Message cancel{.type = MessageType::kCancel, .request = requests_};
    ASSERT_TRUE(ledger_.receive(Rank(0), cancel, now_).is_ok());
    for (const int rank : {1, 2, 3}) ask(rank, type, name, 20s);
    EXPECT_TRUE(sent_.empty());
    ask(0, type, name, 20s);
    ASSERT_TRUE(ledger_.receive(Rank(0), cancel, now_).is_ok()) << "late, and of another request";
    for (int rank = 0; rank < kSize; ++rank) EXPECT_EQ(replies(rank).at(0).code, Code::kOk);
    EXPECT_EQ(replies(0).size(), 1U) << "a cancellation has no answer";
    sent_.clear();
  }
}

TEST_F(Job, LookupsFromARankThatIsGoneFailAtOnce) {
  start();
  const Message publish{.type = MessageType::kPublish, .request = 77, .text = "published"};
  ASSERT_TRUE(ledger_.receive(Rank(2), publish, now_).is_ok());
  ask(0, MessageType::kLookup, "key", 1s, Rank(2));
  ask(1, MessageType::kLookup, "key", 1s, Rank(3));
  ledger_.declare_dead(Rank(2), "killed");
  ASSERT_EQ(replies(0).size(), 1u);
  EXPECT_EQ(replies(0)[0].code, Code::kPeerDead);
  EXPECT_EQ(replies(0)[0].subject, Rank(2));
  EXPECT_EQ(replies(0)[0].text, "rank 2 has not published it and is dead");
  EXPECT_TRUE(replies(1).empty()) << "rank 3 may still publish it";
  sent_.clear();
  ask(0, MessageType::kLookup, "key", 1s, Rank(2));
  EXPECT_EQ(replies(0).at(0).code, Code::kPeerDead);
  sent_.clear();
  ask(0, MessageType::kLookup, "published", 1s, Rank(2));
  EXPECT_EQ(replies(0).at(0).code, Code::kOk) << "what it published outlives it";
  ask(0, MessageType::kLookup, "key", 1s, Rank(99));
  ask(3, MessageType::kLeave, "", 1s);
  EXPECT_EQ(replies(1).at(0).code, Code::kPeerDead) << "a rank that has left publishes nothing";
  EXPECT_EQ(replies(0).size(), 1u) << "there is no rank 99 that could be gone";
}

TEST_F(Job, BarriersOfDifferentNamesAreSeparateAndMayBeRepeated) {
  start();
  for (int round = 0; round < 2; ++round) {
    sent_.clear();
    ask(0, MessageType::kBarrier, "other", 1s);
    for (int rank = 1; rank < kSize; ++rank) ask(rank, MessageType::kBarrier, "b", 1s);
    EXPECT_TRUE(sent_.empty());
    ask(0, MessageType::kBarrier, "b", 1s);
    for (int rank = 0; rank < kSize; ++rank) EXPECT_EQ(replies(rank).size(), 1U);
  }
}

TEST_F(Job, BarrierNamesTheMissingAtItsDeadlineAndTheDeadAtOnce) {
  start();
  ask(0, MessageType::kBarrier, "b", 1s);
  ask(1, MessageType::kBarrier, "b", 10s);
  advance(1s);
  EXPECT_EQ(replies(0).at(0).text, "still missing: 2, 3");
  ledger_.declare_dead(Rank(3), "gone");
  EXPECT_EQ(replies(1).at(0).code, Code::kPeerDead);
  EXPECT_EQ(replies(1).at(0).subject, Rank(3));
  EXPECT_THAT(notices(1), ElementsAre("3 dead"));
}

TEST_F(Job, BarrierDoesNotWaitForARankThatLeft) {
  start();
  for (const int rank : {0, 1, 2}) ask(rank, MessageType::kBarrier, "b", 1s);
  ask(3, MessageType::kLeave, "", 0s);
  EXPECT_EQ(replies(0).at(0).code, Code::kOk);
  EXPECT_EQ(replies(3).at(0).code, Code::kOk);
  // The others know that it has left before it can end, and before an answer that follows from it.
  const auto is_notice = [](const auto& each) { return each.second.type == MessageType::kNotice; };
  EXPECT_TRUE(std::ranges::all_of(sent_.begin(), sent_.begin() + 3, is_notice));
  EXPECT_EQ(sent_[3].first, Rank(3));
  ledger_.declare_dead(Rank(3), "end of its connection");
  EXPECT_THAT(notices(0), ElementsAre("3 left"));
}

TEST_F(Job, SurvivorsGetTheSameMembership) {
  start();
  ledger_.declare_dead(Rank(1), "gone");
  ask(0, MessageType::kReform, "", 1s);
  ask(2, MessageType::kReform, "", 1s);
  EXPECT_TRUE(replies(0).empty());
  ask(3, MessageType::kReform, "", 1s);
  for (const int rank : {0, 2, 3}) {
    EXPECT_EQ(replies(rank).at(0).number, 1U);
    EXPECT_THAT(replies(rank).at(0).ranks, ElementsAre(Rank(0), Rank(2), Rank(3)));
  }
  sent_.clear();
  for (const int rank : {0, 2, 3}) ask(rank, MessageType::kBarrier, "new epoch", 1s);
  EXPECT_EQ(replies(0).at(0).code, Code::kOk);
}

TEST_F(Job, ASecondDeathDuringTheReformIsInTheAnswer) {
  start();
  ledger_.declare_dead(Rank(1), "gone");
  ask(0, MessageType::kReform, "", 1s);
  ask(2, MessageType::kReform, "", 1s);
  ledger_.declare_dead(Rank(3), "gone as well");
  for (const int rank : {0, 2}) {
    EXPECT_THAT(replies(rank).at(0).ranks, ElementsAre(Rank(0), Rank(2)));
  }
}

TEST_F(Job, ACallerThatDiesDuringTheReformIsNotAMember) {
  start();
  ledger_.declare_dead(Rank(1), "gone");
  ask(3, MessageType::kReform, "", 1s);
  ledger_.declare_dead(Rank(3), "gone while it waited");
  ask(0, MessageType::kReform, "", 1s);
  ask(2, MessageType::kReform, "", 1s);
  EXPECT_THAT(replies(0).at(0).ranks, ElementsAre(Rank(0), Rank(2)));
  EXPECT_TRUE(replies(3).empty());
}

TEST_F(Job, TenPeriodsWithoutAHeartbeatAreAStallUntilTheNext) {
  start();
  for (int period = 0; period < 10; ++period) {
    for (const int rank : {0, 1, 2}) ask(rank, MessageType::kHeartbeat, "", 0s);
    EXPECT_TRUE(notices(0).empty()) << period;
    advance(kHeartbeat);
  }
  EXPECT_THAT(notices(0), ElementsAre("3 stalled"));
  ask(3, MessageType::kHeartbeat, "", 0s);
  EXPECT_THAT(notices(0), ElementsAre("3 stalled", "3 alive"));
}

TEST_F(Job, ASleepOfTheCoordinatorStallsNoRank) {
  start();
  advance(kHeartbeat);
  advance(100 * kHeartbeat);
  EXPECT_TRUE(notices(0).empty());
}

TEST_F(Job, MailIsForwardedInOrderToPresentRanks) {
  start();
  const auto send = [&](int to, std::size_t size, std::uint8_t text) {
    return ledger_.receive(
        Rank(1),
        {.type = MessageType::kMail, .subject = Rank(to), .value = Bytes(size, std::byte{text})},
        now_);
  };
  EXPECT_TRUE(send(2, 3, 7).is_ok());
  EXPECT_TRUE(send(2, 0, 0).is_ok());
  EXPECT_TRUE(send(1, 1, 9).is_ok());  // to itself
  ASSERT_EQ(sent_.size(), 3u);
  EXPECT_EQ(sent_[0].first, Rank(2));
  EXPECT_EQ(sent_[0].second.type, MessageType::kMail);
  EXPECT_EQ(sent_[0].second.subject, Rank(1));
  EXPECT_EQ(sent_[0].second.value, Bytes(3, std::byte{7}));
  EXPECT_EQ(sent_[1].second.value, Bytes());
  EXPECT_EQ(sent_[2].first, Rank(1));
  ledger_.declare_dead(Rank(2), "test");
  sent_.clear();
  EXPECT_TRUE(send(2, 3, 7).is_ok()) << "dropped, which is not the fault of the sender";
  EXPECT_TRUE(sent_.empty());
  EXPECT_EQ(send(kSize, 1, 0).code(), Code::kCorrupted);
  EXPECT_EQ(send(-1, 1, 0).code(), Code::kCorrupted);
  EXPECT_TRUE(send(0, Mail::kTopicBytes + Mail::kLargestMessage, 0).is_ok());
  EXPECT_EQ(send(0, Mail::kTopicBytes + Mail::kLargestMessage + 1, 0).code(), Code::kCorrupted);
}

TEST_F(Job, APostDoesNotAnswerThePendingRequest) {
  start();
  EXPECT_TRUE(
      ledger_.receive(Rank(1), {.type = MessageType::kBarrier, .request = 7, .text = "b"}, now_)
          .is_ok());
  sent_.clear();
  EXPECT_TRUE(
      ledger_.receive(Rank(1), {.type = MessageType::kPublish, .text = "key"}, now_).is_ok());
  EXPECT_TRUE(sent_.empty());
}

TEST_F(Job, AJoinAfterTheStartIsAnsweredAndHarmsNothing) {
  start();
  for (const char* const text : {"", "with a text"}) {
    ask(1, MessageType::kJoin, text, 0s);
    ASSERT_EQ(replies(1).size(), 1U);
    EXPECT_EQ(replies(1)[0].code, Code::kOk);
    advance(1ms);
    sent_.clear();
  }
  for (int rank = 0; rank < kSize; ++rank) ask(rank, MessageType::kBarrier, "b", 1s);
  for (int rank = 0; rank < kSize; ++rank) {
    ASSERT_EQ(replies(rank).size(), 1U);
    EXPECT_EQ(replies(rank)[0].code, Code::kOk) << replies(rank)[0].text;
  }
}

// Publishes values of `bytes` bytes under new keys until one is refused, and returns how many were
// kept.
class PublishingJob : public Job {
 protected:
  std::size_t publish_all(int rank, std::size_t bytes, std::size_t most) {
    for (std::size_t i = 0; i < most; ++i) {
      if (publish(rank, fmt::format("{}/{}", rank, i), bytes) != Code::kOk) return i;
    }
    return most;
  }
  Code publish(int rank, const std::string& key, std::size_t bytes) {
    sent_.clear();
    const Message message{
        .type = MessageType::kPublish, .request = 1, .text = key, .value = Bytes(bytes)};
    EXPECT_TRUE(ledger_.receive(Rank(rank), message, now_).is_ok());
    last_ = replies(rank).at(0);
    return last_.code;
  }
  Message last_;
};

TEST_F(PublishingJob, ARankKeepsSoManyBytesAndNoMore) {
  start();
  const std::size_t kept = publish_all(1, kMaxValueBytes, 200);
  EXPECT_GE(kept, 60U);
  EXPECT_LE(kept, 64U);
  EXPECT_EQ(last_.code, Code::kResourceExhausted);
  EXPECT_THAT(last_.text, HasSubstr(" for rank 1, and no more than "));
  EXPECT_EQ(publish(1, "1/0", 0), Code::kAlreadyExists);
  EXPECT_EQ(publish(2, "of another rank", kMaxValueBytes), Code::kOk);
}

TEST_F(PublishingJob, ARankKeepsSoManyKeysAndNoMore) {
  start();
  const std::size_t kept = publish_all(1, 0, 100'000);
  EXPECT_GE(kept, 65'536U);
  EXPECT_LT(kept, 100'000U);
  EXPECT_EQ(last_.code, Code::kResourceExhausted);
  EXPECT_EQ(publish(2, "of another rank", 0), Code::kOk);
}

TEST_F(Job, MessagesThatOnlyTheCoordinatorSendsAreRefused) {
  start();
  EXPECT_EQ(ledger_.receive(Rank(0), {.type = MessageType::kNotice}, now_).code(),
            Code::kCorrupted);
}

TEST(ListRanks, CutsLongLists) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < 25; ++rank) ranks.emplace_back(rank);
  EXPECT_THAT(list_ranks(ranks), HasSubstr("18, 19 and 5 more"));
}

}  // namespace
}  // namespace dunlin::bootstrap
