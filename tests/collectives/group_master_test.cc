// How the master of groups handles what workers say, also about groups of a former master; the
// numbers of its groups; and the encoding of its messages.
#include "collectives/groups/master.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "collectives/groups/numbers.h"
#include "collectives/partial/wire.h"

namespace dunlin::collective::groups {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<Rank> ranks(std::initializer_list<int> values) {
  std::vector<Rank> made;
  for (const int value : values) made.emplace_back(value);
  return made;
}

GroupMessage message_of(MessageKind kind, std::uint64_t number = 0, std::uint64_t iteration = 0) {
  GroupMessage message;
  message.kind = kind;
  message.number = number;
  message.iteration = iteration;
  return message;
}

GroupMessage resume(std::uint64_t joined, std::vector<Rank> inside = {}) {
  GroupMessage message = message_of(MessageKind::kResume, joined);
  message.flag = !inside.empty();
  message.ranks = std::move(inside);
  return message;
}

// The second master of a job with four workers.
class GroupMasterTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kFirst = 1000;

  static GroupOptions options() {
    GroupOptions options;
    options.policy = GroupPolicy::kBuffered;
    options.layout = {1, 4};
    options.group_size = 4;
    return options;
  }

  GroupNotices hear(int from, const GroupMessage& message) {
    GroupNotices notices;
    const Status status = master.hear(Rank(from), message, notices);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    return notices;
  }
  GroupNotices lose(int rank) {
    GroupNotices notices;
    EXPECT_TRUE(master.lose(Rank(rank), notices).is_ok());
    return notices;
  }
  Status refusal(int from, const GroupMessage& message) {
    GroupNotices notices;
    Status status = master.hear(Rank(from), message, notices);
    EXPECT_THAT(notices, IsEmpty());
    return status;
  }
  // Expects that these ranks are told that an old group is broken, and to ask again.
  static void expect_broken(const GroupNotices& notices, std::uint64_t number,
                            const std::set<int>& told) {
    std::set<int> found;
    for (const GroupNotice& notice : notices) {
      EXPECT_EQ(notice.kind, GroupNotice::Kind::kBroken);
      EXPECT_EQ(notice.group.sequence, number);
      EXPECT_TRUE(notice.ask_again);
      EXPECT_TRUE(found.insert(notice.to.value()).second) << "told twice";
    }
    EXPECT_EQ(found, told);
  }

  GroupMaster master = GroupMaster::make(options(), kFirst).value();
};

TEST_F(GroupMasterTest, NumbersItsGroupsAboveAllFormerOnes) {
  const GroupNotices told = hear(2, message_of(MessageKind::kAsk, 999, 7));
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].group.sequence, kFirst);
  EXPECT_EQ(told[0].group.ranks, ranks({0, 1, 2, 3}));
}

TEST_F(GroupMasterTest, KnowsNothingOfFormerGroupsThatAreDone) {
  EXPECT_THAT(hear(1, message_of(MessageKind::kDone, 999)), IsEmpty());
}

TEST_F(GroupMasterTest, AFormerGroupThatAllHaveComeToGoesOn) {
  EXPECT_THAT(hear(0, resume(20, ranks({0, 1, 3}))), IsEmpty());
  EXPECT_THAT(hear(3, resume(20, ranks({0, 1, 3}))), IsEmpty());
  // One worker is done with it and in no other group, one was never in it, and one is in a later
  // group.
  EXPECT_THAT(hear(1, message_of(MessageKind::kDone, 20)), IsEmpty());
  EXPECT_THAT(hear(1, resume(20)), IsEmpty());
  EXPECT_THAT(hear(2, resume(5)), IsEmpty());
}

TEST_F(GroupMasterTest, AMemberThatIsDoneWithAGroupMayHaveJoinedLaterOnes) {
  EXPECT_THAT(hear(0, resume(20, ranks({0, 1}))), IsEmpty());
  EXPECT_THAT(hear(1, message_of(MessageKind::kDone, 20)), IsEmpty());
  EXPECT_THAT(hear(1, message_of(MessageKind::kDone, 31)), IsEmpty());
  EXPECT_THAT(hear(1, resume(40, ranks({1, 2}))), IsEmpty());
}

// The master between may have died before it could tell the others.
TEST_F(GroupMasterTest, OneThatAMemberHasPassedOverIsBroken) {
  EXPECT_THAT(hear(0, resume(20, ranks({0, 1}))), IsEmpty());
  EXPECT_THAT(hear(1, message_of(MessageKind::kDone, 19)), IsEmpty());
  expect_broken(hear(1, resume(40, ranks({1, 2}))), 20, {0});
}

TEST_F(GroupMasterTest, OneThatFailedBeforeOthersReportIsBroken) {
  EXPECT_THAT(hear(1, resume(20, ranks({0, 1}))), IsEmpty());
  expect_broken(hear(1, message_of(MessageKind::kFail, 20)), 20, {1});
  expect_broken(hear(0, resume(20, ranks({0, 1}))), 20, {0});
}

TEST_F(GroupMasterTest, OneThatAMemberWasNotToldOfIsBroken) {
  EXPECT_THAT(hear(0, resume(20, ranks({0, 1, 3}))), IsEmpty());
  EXPECT_THAT(hear(3, resume(20, ranks({0, 1, 3}))), IsEmpty());
  expect_broken(hear(1, resume(19)), 20, {0, 3});
}

TEST_F(GroupMasterTest, OneThatAMemberWasNotToldOfIsBrokenForThoseThatReportLater) {
  EXPECT_THAT(hear(1, resume(19)), IsEmpty());
  expect_broken(hear(0, resume(20, ranks({0, 1, 3}))), 20, {0});
  expect_broken(hear(3, resume(20, ranks({0, 1, 3}))), 20, {3});
}

TEST_F(GroupMasterTest, OneWithADeadMemberIsBroken) {
  EXPECT_THAT(hear(0, resume(20, ranks({0, 1}))), IsEmpty());
  EXPECT_THAT(lose(3), IsEmpty());
  expect_broken(lose(1), 20, {0});
}

TEST_F(GroupMasterTest, OneThatFailedIsBrokenForAll) {
  EXPECT_THAT(hear(0, resume(20, ranks({0, 1, 2}))), IsEmpty());
  EXPECT_THAT(hear(1, resume(20, ranks({0, 1, 2}))), IsEmpty());
  expect_broken(hear(2, resume(20)), 20, {0, 1});
  expect_broken(hear(2, message_of(MessageKind::kFail, 20)), 20, {2});
  expect_broken(hear(1, message_of(MessageKind::kFail, 20)), 20, {1});
}

TEST_F(GroupMasterTest, WhoLeavesBreaksNothingThatItIsDoneWith) {
  for (const int rank : {0, 1, 2, 3})
    EXPECT_THAT(hear(rank, message_of(MessageKind::kAsk, 0, 1)), SizeIs(1));
  // The leader has not said yet that it is done.
  EXPECT_THAT(hear(3, message_of(MessageKind::kLeave, kFirst)), IsEmpty());
  EXPECT_THAT(hear(0, message_of(MessageKind::kDone, kFirst)), IsEmpty());
  // The next group is without it.
  const GroupNotices told = hear(1, message_of(MessageKind::kAsk, kFirst, 2));
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].group.ranks, ranks({0, 1, 2}));
}

TEST_F(GroupMasterTest, WhoLeavesBreaksWhatItWasDraftedTo) {
  EXPECT_THAT(hear(0, message_of(MessageKind::kAsk, 0, 1)), SizeIs(1));
  const GroupNotices told = hear(3, message_of(MessageKind::kLeave));
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].kind, GroupNotice::Kind::kBroken);
  EXPECT_EQ(told[0].to, Rank(0));
}

TEST_F(GroupMasterTest, IsOverWhenAllHaveLeftOrAreDead) {
  (void)hear(0, message_of(MessageKind::kLeave));
  (void)hear(1, message_of(MessageKind::kLeave));
  (void)lose(2);
  EXPECT_FALSE(master.is_over());
  (void)hear(3, message_of(MessageKind::kLeave));
  EXPECT_TRUE(master.is_over());
  EXPECT_EQ(refusal(0, message_of(MessageKind::kAsk, 0, 3)).code(), Code::kPeerDead);
  EXPECT_EQ(refusal(2, message_of(MessageKind::kLeave)).code(), Code::kPeerDead);
}

TEST_F(GroupMasterTest, RefusesWhatCannotBe) {
  EXPECT_THAT(refusal(0, resume(kFirst)).to_string(), HasSubstr("which is ours"));
  EXPECT_THAT(refusal(0, resume(20, ranks({1, 2}))).to_string(), HasSubstr("other members"));
  EXPECT_THAT(hear(0, resume(20, ranks({0, 1}))), IsEmpty());
  EXPECT_THAT(refusal(0, resume(20, ranks({0, 1}))).to_string(), HasSubstr("second time"));
  const Status status = refusal(1, resume(20, ranks({0, 1, 2})));
  EXPECT_THAT(status.to_string(), HasSubstr("other members"));
  EXPECT_EQ(status.peer(), Rank(1));
  EXPECT_EQ(refusal(1, message_of(MessageKind::kLeave, kFirst)).code(), Code::kInvalidArgument);
  EXPECT_EQ(refusal(1, message_of(MessageKind::kJoin, 20)).code(), Code::kCorrupted);
}

TEST(GroupMessages, ComeOutAsTheyWentIn) {
  std::vector<GroupMessage> all = {message_of(MessageKind::kAsk, 5, ~std::uint64_t{0}),
                                   message_of(MessageKind::kDone, 5),
                                   message_of(MessageKind::kFail, 6),
                                   message_of(MessageKind::kLeave, 7),
                                   message_of(MessageKind::kOver),
                                   resume(0),
                                   resume(8, ranks({0, 3, 4}))};
  all.push_back(message_of(MessageKind::kJoin, 9));
  all.back().ranks = ranks({1});
  all.back().flag = true;
  all.push_back(message_of(MessageKind::kBroken, 9));
  all.back().flag = true;
  all.push_back(message_of(MessageKind::kRefused));
  all.back().code = Code::kCorrupted;
  all.back().text = "why";
  for (const GroupMessage& message : all) {
    const auto decoded = decode(encode(message), 5);
    ASSERT_TRUE(decoded.is_ok()) << decoded.status().to_string();
    EXPECT_EQ(*decoded, message);
    // As long as the group is small, a message is one piece of a mailbox.
    EXPECT_LE(encode(message).body.size(), transport::kInlineBytes);
    // Messages that are cut off or too long are refused.
    MailboxMessage damaged = encode(message);
    damaged.body.push_back(std::byte{0});
    EXPECT_EQ(decode(damaged, 5).status().code(), Code::kCorrupted);
    while (!damaged.body.empty()) {
      damaged.body.pop_back();
      if (damaged.body.size() == encode(message).body.size()) continue;
      EXPECT_EQ(decode(damaged, 5).status().code(), Code::kCorrupted) << damaged.body.size();
    }
  }
}

TEST(GroupMessages, ThatNoRankSendsAreRefused) {
  const auto expect_refused = [](const GroupMessage& message, const char* what) {
    const auto decoded = decode(encode(message), 4);
    ASSERT_FALSE(decoded.is_ok()) << what;
    EXPECT_EQ(decoded.status().code(), Code::kCorrupted);
    EXPECT_THAT(decoded.status().to_string(), HasSubstr(what));
  };
  GroupMessage join = message_of(MessageKind::kJoin, 1);
  for (const auto& members :
       {ranks({}), ranks({0, 4}), ranks({-1, 0}), ranks({1, 1}), ranks({2, 1})}) {
    join.ranks = members;
    expect_refused(join, "a group's members");
  }
  join.ranks = ranks({0, 1, 2, 3, 4});
  expect_refused(join, "more members than ranks");
  join.ranks = ranks({0, 1});
  join.number = 0;
  expect_refused(join, "names no group");
  join.number = partial::kLastNumber;
  expect_refused(join, "beyond all");
  expect_refused(message_of(MessageKind::kDone), "names no group");
  expect_refused(message_of(static_cast<MessageKind>(0), 1), "no such kind");
  expect_refused(message_of(static_cast<MessageKind>(10), 1), "no such kind");
  GroupMessage refusal = message_of(MessageKind::kRefused);
  refusal.code = Code::kOk;
  expect_refused(refusal, "no such reason");
  MailboxMessage message = encode(message_of(MessageKind::kOver));
  message.body[1] = std::byte{2};
  EXPECT_EQ(decode(message, 4).status().code(), Code::kCorrupted);
}

TEST(GroupNumbersTest, BlocksAreTakenOnce) {
  InProcessJob job(2);
  const auto first = job.bootstrap(Rank(0));
  const auto second = job.bootstrap(Rank(1));
  GroupNumbers a = GroupNumbers::take(*first, "numbers", 0).value();
  EXPECT_EQ(a.first(), 1u);
  EXPECT_EQ(a.end(), GroupNumbers::kBlock);
  // Its successor begins above all numbers that it may have used.
  GroupNumbers b = GroupNumbers::take(*second, "numbers", 17).value();
  EXPECT_EQ(b.first(), GroupNumbers::kBlock);
  EXPECT_TRUE(b.extend(b.first()).is_ok());
  EXPECT_EQ(b.end(), 2 * GroupNumbers::kBlock);
  EXPECT_TRUE(b.extend(b.end() - 10).is_ok());
  EXPECT_EQ(b.end(), 3 * GroupNumbers::kBlock);
  // The rank that was succeeded finds out.
  EXPECT_TRUE(a.extend(100).is_ok());
  EXPECT_EQ(a.extend(a.end() - 10).code(), Code::kClosed);
  EXPECT_EQ(GroupNumbers::take(*first, "others", 0)->first(), 1u);
  EXPECT_EQ(GroupNumbers::take(*first, "numbers", partial::kLastNumber).status().code(),
            Code::kResourceExhausted);
}

}  // namespace
}  // namespace dunlin::collective::groups
