// Lookups of what many ranks publish: when the ledger answers them, and with what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "runtime/bootstrap/constants.h"
#include "tests/runtime/bootstrap/coordinator_job.h"
#include "tests/runtime/bootstrap/ledger_test.h"

namespace dunlin::bootstrap {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kTopic = "topic";

class LookingUp : public LedgerTest {
 protected:
  void publish(int rank, std::size_t bytes = 1) {
    const Message message{.type = MessageType::kPublish,
                          .text = Bootstrap::key_of(kTopic, Rank(rank)),
                          .value = Bytes(bytes, static_cast<std::byte>(rank))};
    EXPECT_TRUE(ledger_.receive(Rank(rank), message, now_).is_ok());
  }
  void look_up(int rank, const std::vector<Rank>& publishers, Duration timeout = 1s) {
    const Message message{.type = MessageType::kLookup,
                          .request = ++requests_,
                          .number = static_cast<std::uint64_t>(timeout.count()),
                          .text = kTopic,
                          .ranks = publishers};
    EXPECT_TRUE(ledger_.receive(Rank(rank), message, now_).is_ok());
  }
  void release(int rank, std::uint64_t users) {
    const Message message{.type = MessageType::kRelease, .number = users, .text = kTopic};
    EXPECT_TRUE(ledger_.receive(Rank(rank), message, now_).is_ok());
  }
  // The first bytes of the values that a rank was answered, which are the publishers' ranks.
  std::vector<int> answered(int rank) const {
    std::vector<int> firsts;
    for (const Message& reply : replies(rank)) {
      EXPECT_EQ(reply.code, Code::kOk) << reply.text;
      ByteReader reader(reply.value);
      while (reader.ok() && !reader.at_end())
        firsts.push_back(static_cast<int>(reader.blob().front()));
      EXPECT_TRUE(reader.ok());
    }
    return firsts;
  }
};

TEST_F(LookingUp, TheAnswerComesWithTheLastValueInTheOrderAskedFor) {
  start();
  publish(3);
  look_up(0, {Rank(2), Rank(3), Rank(1)});
  publish(1);
  EXPECT_THAT(replies(0), IsEmpty());
  publish(2);
  EXPECT_THAT(answered(0), ElementsAre(2, 3, 1));
  EXPECT_EQ(replies(0).size(), 1U);
  look_up(1, {Rank(1), Rank(1)});
  EXPECT_THAT(answered(1), ElementsAre(1, 1)) << "at once, and also one's own";
}

TEST_F(LookingUp, ADeathIsToldAtOnceWhereverTheRankStandsInTheList) {
  start();
  publish(1);
  look_up(0, {Rank(2), Rank(1), Rank(3)});
  ledger_.declare_dead(Rank(1), "it was killed");
  EXPECT_THAT(replies(0), IsEmpty()) << "its value is there";
  ledger_.declare_dead(Rank(3), "it was killed");
  ASSERT_EQ(replies(0).size(), 1U);
  EXPECT_EQ(replies(0)[0].code, Code::kPeerDead);
  EXPECT_EQ(replies(0)[0].subject, Rank(3));
  sent_.clear();
  look_up(2, {Rank(0), Rank(3)});
  ASSERT_EQ(replies(2).size(), 1U) << "it was dead before";
  EXPECT_EQ(replies(2)[0].subject, Rank(3));
  look_up(0, {Rank(1)});
  EXPECT_THAT(answered(0), ElementsAre(1));
}

TEST_F(LookingUp, AnExpiryNamesTheFirstKeyThatIsMissing) {
  start();
  publish(2);
  look_up(0, {Rank(2), Rank(3), Rank(1)}, 10ms);
  advance(11ms);
  ASSERT_EQ(replies(0).size(), 1U);
  EXPECT_EQ(replies(0)[0].code, Code::kDeadlineExceeded);
  EXPECT_EQ(replies(0)[0].subject, Rank(3));
  EXPECT_THAT(replies(0)[0].text, HasSubstr("topic#3"));
  sent_.clear();
  publish(3);
  publish(1);
  EXPECT_THAT(sent_, IsEmpty()) << "the request is over";
}

TEST_F(LookingUp, ACancelledLookupIsNotAnswered) {
  start();
  publish(2);
  look_up(0, {Rank(2), Rank(1)});
  const Message cancel{.type = MessageType::kCancel, .request = requests_};
  EXPECT_TRUE(ledger_.receive(Rank(0), cancel, now_).is_ok());
  publish(1);
  EXPECT_THAT(sent_, IsEmpty());
}

TEST_F(LookingUp, AnAnswerHoldsTheFirstValuesThatFit) {
  start();
  publish(1, kMaxValueBytes);
  publish(2, kMaxValueBytes / 2);
  publish(3, kMaxValueBytes / 2 - 8);
  look_up(0, {Rank(1), Rank(2), Rank(3)});
  EXPECT_THAT(answered(0), ElementsAre(1));
  sent_.clear();
  look_up(0, {Rank(2), Rank(3)});
  EXPECT_THAT(answered(0), ElementsAre(2, 3)) << "exactly kMaxValueBytes";
  sent_.clear();
  look_up(0, {Rank(3), Rank(1)});
  EXPECT_THAT(answered(0), ElementsAre(3));
}

TEST_F(LookingUp, AValueThatIsReleasedMeanwhileIsMissingAgain) {
  start();
  publish(1);
  look_up(0, {Rank(1), Rank(2)});
  release(3, 1);  // wrongly: rank 0 still asks for it
  publish(2);
  EXPECT_THAT(replies(0), IsEmpty());
  publish(1);
  EXPECT_THAT(answered(0), ElementsAre(1, 2));
}

TEST_F(LookingUp, RanksThatTheJobDoesNotHavePublishNothing) {
  start();
  look_up(0, {Rank(1 << 20), Rank(-7)}, 10ms);
  advance(11ms);
  ASSERT_EQ(replies(0).size(), 1U);
  EXPECT_EQ(replies(0)[0].code, Code::kDeadlineExceeded);
}

TEST(LookupEach, CollectsValuesOfMoreThanOneMessageOverTcp) {
  constexpr int kRanks = 5;
  constexpr std::size_t kBytes = kMaxValueBytes / 2;
  const auto coordinator = start_coordinator(kRanks);
  run_job(*coordinator, kRanks, [](Bootstrap& bootstrap) {
    const Rank self = bootstrap.rank();
    const auto missing = bootstrap.lookup_each(kTopic, std::vector{Rank(4)}, Duration::zero());
    EXPECT_TRUE(!missing || self != Rank(4));
    ASSERT_TRUE(bootstrap
                    .publish(Bootstrap::key_of(kTopic, self),
                             Bytes(kBytes, static_cast<std::byte>(self.value())))
                    .is_ok());
    const std::vector publishers{Rank(4), Rank(2), Rank(0), Rank(3), Rank(1)};
    const auto found = bootstrap.lookup_each(kTopic, publishers, kTimeout);
    ASSERT_TRUE(found.is_ok()) << found.status().to_string();
    ASSERT_EQ(found->size(), publishers.size());
    for (std::size_t i = 0; i < publishers.size(); ++i)
      EXPECT_EQ((*found)[i], Bytes(kBytes, static_cast<std::byte>(publishers[i].value())));
    EXPECT_THAT(bootstrap.lookup_each(kTopic, {}, Duration::zero()).value(), IsEmpty());
    EXPECT_EQ(bootstrap.lookup_each(kTopic, std::vector{Rank(kRanks)}, kTimeout).status().code(),
              Code::kOutOfRange);
    ASSERT_TRUE(bootstrap.barrier("end", kTimeout).is_ok());
  });
}

}  // namespace
}  // namespace dunlin::bootstrap
