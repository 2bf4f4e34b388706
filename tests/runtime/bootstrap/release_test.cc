// What ranks release: the ledger forgets it when all of its users have.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/neighbor_values.h"
#include "tests/runtime/bootstrap/ledger_test.h"

namespace dunlin::bootstrap {
namespace {

using namespace std::chrono_literals;

constexpr int kMoreThanARankMayKeep = 70'000;
static_assert(kMoreThanARankMayKeep > kMaxKeptKeys + kMaxKeptKeysPerPeer * 4);

class Releasing : public LedgerTest {
 protected:
  Code publish(int rank, const std::string& key) {
    sent_.clear();
    const Message message{.type = MessageType::kPublish,
                          .request = ++requests_,
                          .text = key,
                          .value = Bytes(1, static_cast<std::byte>(rank))};
    EXPECT_TRUE(ledger_.receive(Rank(rank), message, now_).is_ok());
    return replies(rank).at(0).code;
  }
  Code gather(int rank, const std::string& name, std::size_t bytes) {
    sent_.clear();
    const Message message{.type = MessageType::kGather,
                          .request = ++requests_,
                          .number = 0,
                          .text = name,
                          .value = Bytes(bytes)};
    EXPECT_TRUE(ledger_.receive(Rank(rank), message, now_).is_ok());
    advance(1ms);
    return replies(rank).at(0).code;
  }
  void release(int rank, const std::string& topic, std::uint64_t users) {
    const Message message{.type = MessageType::kRelease, .number = users, .text = topic};
    EXPECT_TRUE(ledger_.receive(Rank(rank), message, now_).is_ok());
  }
  bool is_published(const std::string& key) {
    sent_.clear();
    ask(3, MessageType::kLookup, key, 0s);
    advance(1ms);
    return replies(3).at(0).code == Code::kOk;
  }
};

TEST_F(Releasing, ATopicIsForgottenWhenAllOfItsUsersHaveReleasedIt) {
  start();
  const std::vector<std::string> keys{"t", Bootstrap::key_of("t", Rank(0)),
                                      Bootstrap::key_of("t", Rank(1))};
  EXPECT_EQ(publish(2, keys[0]), Code::kOk);
  EXPECT_EQ(publish(0, keys[1]), Code::kOk);
  EXPECT_EQ(publish(1, keys[2]), Code::kOk);
  release(1, "t", 3);
  release(0, "t", 3);
  for (const std::string& key : keys) EXPECT_TRUE(is_published(key)) << key;
  release(2, "t", 3);
  for (const std::string& key : keys) EXPECT_FALSE(is_published(key)) << key;
  EXPECT_EQ(publish(1, keys[0]), Code::kOk) << "as if it had never been published";
  EXPECT_TRUE(is_published(keys[0]));
}

TEST_F(Releasing, OneRankMayGiveTheNumberOfUsersForAll) {
  start();
  EXPECT_EQ(publish(0, "t"), Code::kOk);
  release(1, "t", 0);
  release(0, "t", 3);
  EXPECT_TRUE(is_published("t"));
  release(2, "t", 0);
  EXPECT_FALSE(is_published("t"));
}

TEST_F(Releasing, KeysThatOnlyLookLikeThoseOfTheTopicStay) {
  start();
  const std::vector<std::string> others{"t#", "t#0/x", "t#00", "t#1", "t#10", "t#x", "t/0", "tt#0"};
  for (const std::string& key : others) EXPECT_EQ(publish(0, key), Code::kOk);
  EXPECT_EQ(publish(0, "t#0"), Code::kOk);
  release(0, "t", 1);
  for (const std::string& key : others) EXPECT_TRUE(is_published(key)) << key;
  EXPECT_FALSE(is_published("t#0"));
}

TEST_F(Releasing, AGatherIsForgottenToo) {
  start();
  for (int rank = 0; rank < kSize - 1; ++rank)
    EXPECT_EQ(gather(rank, "g", 2), Code::kDeadlineExceeded);
  EXPECT_EQ(gather(3, "g", 2), Code::kOk);
  EXPECT_EQ(gather(0, "g", 2), Code::kOk) << "may be repeated";
  for (int rank = 0; rank < kSize; ++rank) release(rank, "g", kSize);
  EXPECT_EQ(gather(0, "g", 5), Code::kDeadlineExceeded) << "a new one, with records of its own";
  release(0, "g", 1);  // one that lacks records
  EXPECT_EQ(gather(0, "g", 7), Code::kDeadlineExceeded);
}

TEST_F(Releasing, WhatIsForgottenDoesNotCountAsKept) {
  start();
  for (int i = 0; i < kMoreThanARankMayKeep; ++i) {
    ASSERT_EQ(publish(1, "t#1"), Code::kOk) << i;
    ASSERT_EQ(gather(1, "t", 2), Code::kDeadlineExceeded) << i;
    release(2, "t", 0);
    release(1, "t", 2);
  }
}

TEST_F(Releasing, ARankThatHasNoRoomLeftCanMakeSome) {
  start();
  for (int i = 0; publish(1, fmt::format("t/{}", i)) == Code::kOk; ++i)
    ASSERT_LT(i, kMoreThanARankMayKeep);
  release(1, "t/7", 1);
  EXPECT_EQ(publish(1, "key"), Code::kOk);
  EXPECT_EQ(publish(1, "another key"), Code::kResourceExhausted);
}

TEST_F(Releasing, SoManyReleasesOfARankWaitForOthersAndNoMore) {
  start();
  EXPECT_EQ(publish(1, "key"), Code::kOk);
  for (int i = 0; i < kMoreThanARankMayKeep; ++i) release(1, fmt::format("t/{}", i), 2);
  release(1, "key", 1);
  EXPECT_FALSE(is_published("key")) << "it waits for nobody";
  EXPECT_EQ(publish(1, "another"), Code::kOk);
  release(1, "another", 2);
  release(2, "another", 0);
  EXPECT_TRUE(is_published("another")) << "that of rank 1 was not noted";
  release(1, "another", 2);
  EXPECT_FALSE(is_published("another")) << "the last one";
}

TEST_F(Releasing, ASecondReleaseOfARankHasNoEffect) {
  start();
  EXPECT_EQ(publish(1, "t"), Code::kOk);
  release(1, "t", 2);
  release(1, "t", 2);
  EXPECT_TRUE(is_published("t"));
  release(0, "t", 0);
  EXPECT_FALSE(is_published("t"));
}

TEST_F(Releasing, AMalformedReleaseIsRefused) {
  start();
  for (const Message& message :
       {Message{.type = MessageType::kRelease},
        Message{.type = MessageType::kRelease, .text = "t", .value = Bytes(1)},
        Message{.type = MessageType::kRelease, .text = "t", .ranks = {Rank(1)}}})
    EXPECT_EQ(ledger_.receive(Rank(1), message, now_).code(), Code::kCorrupted);
}

// Rank i has edges to i + 1 and i + 2.
TEST(NeighborValues, EachIsForgottenWhenItsPublisherAndAllNeighborsAreDone) {
  constexpr int kRanks = 5;
  InProcessJob job(kRanks);
  std::vector<std::unique_ptr<Bootstrap>> bootstraps;
  for (int rank = 0; rank < kRanks; ++rank) bootstraps.push_back(job.bootstrap(Rank(rank)));
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<NeighborValues>> values;
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::vector in{Rank((rank + 4) % kRanks), Rank((rank + 3) % kRanks)};
      const std::vector out{Rank((rank + 1) % kRanks), Rank((rank + 2) % kRanks), Rank(rank)};
      Bootstrap& bootstrap = *bootstraps[static_cast<std::size_t>(rank)];
      values.push_back(std::make_unique<NeighborValues>(bootstrap, "graph", in, out));
      EXPECT_EQ(values.back()->neighbors().size(), 4U);
      const Bytes own(1, static_cast<std::byte>(16 * round + rank));
      ASSERT_TRUE(values.back()->publish(own).is_ok());
    }
    EXPECT_EQ(values[0]->lookup(Rank(1), 1s).value().front(),
              static_cast<std::byte>(16 * round + 1));
    // Rank 1 may still ask for the others' values.
    for (const std::size_t rank : {3U, 0U, 4U, 2U}) values[rank].reset();
    EXPECT_EQ(values[1]->lookup(Rank(4), 1s).value().front(),
              static_cast<std::byte>(16 * round + 4));
    values[1].reset();
    EXPECT_EQ(bootstraps[0]
                  ->lookup(Bootstrap::key_of("graph", Rank(1)), Duration::zero())
                  .status()
                  .code(),
              Code::kDeadlineExceeded);
  }
}

TEST(NeighborValues, WhatWasNotPublishedReleasesNothing) {
  InProcessJob job(2);
  const auto first = job.bootstrap(Rank(0));
  const auto second = job.bootstrap(Rank(1));
  const std::vector peer{Rank(1)};
  NeighborValues values(*first, "graph", peer, peer);
  ASSERT_TRUE(values.publish(Bytes(1)).is_ok());
  {
    NeighborValues again(*first, "graph", peer, peer);
    EXPECT_EQ(again.publish(Bytes(1)).code(), Code::kAlreadyExists);
  }
  EXPECT_TRUE(second->lookup(Bootstrap::key_of("graph", Rank(0)), 1s).is_ok());
}

}  // namespace
}  // namespace dunlin::bootstrap
