// Mailboxes on the hostile network, over many seeds; peers that write what they should not; and how
// workers and the master of groups handle such peers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "collectives/groups/mailbox.h"
#include "collectives/groups/message.h"
#include "collectives/groups/service.h"
#include "tests/sim/hostile_world.h"
#include "tests/support/seeds.h"

namespace dunlin::testing {
namespace {

using collective::GroupService;
using collective::GroupServiceOptions;
using collective::groups::encode;
using collective::groups::GroupMessage;
using collective::groups::kMailboxDepth;
using collective::groups::Mailboxes;
using collective::groups::MailboxMessage;
using collective::groups::MessageKind;
using ::testing::HasSubstr;

Bytes text(std::string_view contents) {
  const auto bytes = as_bytes(contents);
  return {bytes.begin(), bytes.end()};
}

class MailboxChaosTest : public ::testing::TestWithParam<std::uint64_t> {};

MailboxMessage draw(std::uint64_t seed, int from, int to, std::uint64_t nth) {
  std::mt19937_64 random(seed * 1000 + static_cast<std::uint64_t>(from * 10 + to) + nth * 77);
  MailboxMessage message;
  message.tag = random();
  constexpr std::size_t kSizes[] = {0, 1, 39, 40, 41, 80, 1000};
  message.body.resize(kSizes[random() % std::size(kSizes)]);
  for (std::byte& byte : message.body) byte = static_cast<std::byte>(random());
  return message;
}

// All ranks send to all, in bursts, and read at random moments.
TEST_P(MailboxChaosTest, EveryMessageArrivesOnceWholeAndInOrder) {
  constexpr std::uint64_t kMessages = 25;
  const int size = 2 + static_cast<int>(GetParam() % 3);
  HostileWorld world(GetParam(), size);
  std::vector<std::unique_ptr<Mailboxes>> boxes;
  for (int rank = 0; rank < size; ++rank) {
    boxes.push_back(std::make_unique<Mailboxes>(world.fabric(rank), "messages", text("terms")));
    ASSERT_TRUE(boxes.back()->publish().is_ok());
  }
  const auto pair = [&](int from, int to) { return static_cast<std::size_t>(from * size + to); };
  std::vector<std::uint64_t> sent(pair(size, 0));
  std::vector<std::uint64_t> received(pair(size, 0));
  const bool is_finished = world.run([&](int rank) {
    Mailboxes& own = *boxes[static_cast<std::size_t>(rank)];
    bool is_done = true;
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      std::uint64_t& out = sent[pair(rank, peer)];
      while (out < kMessages && world.random()() % 3 == 0) {
        EXPECT_TRUE(own.send(Rank(peer), draw(GetParam(), rank, peer, out)).is_ok());
        ++out;
      }
      std::uint64_t& in = received[pair(peer, rank)];
      if (world.random()() % 2 == 0) {
        const auto message = own.receive(Rank(peer)).value();
        if (message) {
          const MailboxMessage expected = draw(GetParam(), peer, rank, in++);
          EXPECT_EQ(message->tag, expected.tag);
          EXPECT_EQ(message->body, expected.body) << "seed " << GetParam();
        }
      }
      is_done = is_done && out == kMessages && in == kMessages && own.is_delivered(Rank(peer));
    }
    EXPECT_TRUE(own.progress().is_ok());
    return is_done;
  });
  EXPECT_TRUE(is_finished) << "seed " << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Seeds, MailboxChaosTest, ::testing::Range<std::uint64_t>(0, seeds(200)),
                         [](const auto& seed) { return std::to_string(seed.param); });

// Rank 1 writes anything into rank 0's cells.
class HostilePeer : public ::testing::Test {
 protected:
  HostilePeer() : world(0, 2), box(world.fabric(0), "messages", {}) {
    EXPECT_TRUE(box.publish().is_ok());
    const Bytes offer =
        world.fabric(1).bootstrap().lookup("mailbox/messages/0", Duration::zero()).value();
    cells = ByteReader(offer).number<std::uint32_t>() + kMailboxDepth + 1;  // those of rank 1
  }

  void write(std::uint64_t sequence, std::uint64_t tag, std::uint32_t left, std::string_view data) {
    transport::Notification notification;
    notification.id =
        transport::NotifyId(cells + static_cast<std::uint32_t>((sequence - 1) % kMailboxDepth));
    notification.sequence = sequence;
    notification.tag = tag;
    notification.length = left;
    notification.inline_data = as_bytes(data);
    post(notification);
  }

  void acknowledge(std::uint64_t pieces) {
    transport::Notification notification;
    notification.id = transport::NotifyId(cells + kMailboxDepth);
    notification.sequence = pieces;
    post(notification);
  }

  void post(const transport::Notification& notification) {
    transport::Lane& lane = world.fabric(1).link(Rank(0)).value()->control();
    bool is_posted = false;
    const bool has_arrived = world.run([&](int) {
      if (!is_posted) is_posted = lane.notify(notification, nullptr).is_ok();
      return world.fabric(0).board().sequence(notification.id) == notification.sequence;
    });
    EXPECT_TRUE(has_arrived);
  }

  void expect_corrupted(const char* what) {
    const auto message = box.receive(Rank(1));
    ASSERT_FALSE(message.is_ok());
    EXPECT_EQ(message.status().code(), Code::kCorrupted);
    EXPECT_EQ(message.status().peer(), Rank(1));
    EXPECT_THAT(message.status().to_string(), HasSubstr(what));
    // Nothing is read any more.
    EXPECT_FALSE(box.receive(Rank(1)).value().has_value());
  }

  HostileWorld world;
  Mailboxes box;
  std::uint32_t cells = 0;
};

const std::string kForty(40, 'x');

TEST_F(HostilePeer, MayNotSkipPieces) {
  write(1 + kMailboxDepth, 7, 0, "");
  expect_corrupted("piece 5 of its messages came where 1 is due");
}

TEST_F(HostilePeer, MayNotChangeTheLengthInBetween) {
  write(1, 7, 100, kForty);
  EXPECT_FALSE(box.receive(Rank(1)).value().has_value());
  write(2, 7, 70, kForty);
  expect_corrupted("with 70 left of its message, where 60 are missing");
}

TEST_F(HostilePeer, MayNotMixMessages) {
  write(1, 7, 50, kForty);
  write(2, 8, 10, "0123456789");
  expect_corrupted("a piece of 10 bytes");
}

TEST_F(HostilePeer, MayNotSendLessThanItSays) {
  write(1, 7, 10, "012");
  expect_corrupted("a piece of 3 bytes with 10 left");
}

TEST_F(HostilePeer, MayNotSendWithoutEnd) {
  write(1, 7, 0x7fffffff, kForty);
  expect_corrupted("with 2147483647 left");
}

TEST_F(HostilePeer, MayNotAcknowledgeWhatItWasNotSent) {
  acknowledge(3);
  expect_corrupted("claims to have read 3 pieces of messages, of 0");
  // What the owner says to others does not end with it.
  ASSERT_TRUE(box.send(Rank(1), {0, Bytes(4)}).is_ok());
  EXPECT_TRUE(box.progress().is_ok());
}

TEST_F(HostilePeer, MessagesAreBounded) {
  EXPECT_EQ(box.send(Rank(1), {0, Bytes(collective::groups::kLongestMessage + 1)}).code(),
            Code::kInvalidArgument);
  const MailboxMessage longest{0, Bytes(collective::groups::kLongestMessage)};
  Status status;
  for (int i = 0; i < 10 && status.is_ok(); ++i) status = box.send(Rank(1), longest);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(status.peer(), Rank(1));
}

TEST_F(HostilePeer, OtherTermsAreFoundOut) {
  Mailboxes other(world.fabric(1), "messages", text("others"));
  ASSERT_TRUE(other.publish().is_ok());
  ASSERT_TRUE(other.send(Rank(0), {1, {}}).is_ok());
  const Status status = other.progress();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.peer(), Rank(0));
}

// Rank 1 sends the master what no worker sends. The master refuses it, and goes on serving.
class HostileWorker : public ::testing::Test {
 protected:
  HostileWorker() : world(0, 3) {
    GroupServiceOptions options;
    options.groups.layout = {1, 3};
    for (const int rank : {0, 2}) {
      services.push_back(GroupService::create(world.fabric(rank), options).value());
    }
    const Bytes offer =
        world.fabric(1).bootstrap().lookup("mailbox/groups/world/0", Duration::zero()).value();
    ByteReader reader(offer);
    (void)reader.number<std::uint32_t>();
    const auto terms = reader.blob();
    box = std::make_unique<Mailboxes>(world.fabric(1), "groups/world",
                                      Bytes(terms.begin(), terms.end()));
    EXPECT_TRUE(box->publish().is_ok());
  }

  void expect_refusal(const MailboxMessage& message, Code code, const char* why) {
    ASSERT_TRUE(box->send(Rank(0), message).is_ok());
    std::optional<MailboxMessage> answer;
    const bool has_answer = world.run([&](int rank) {
      if (rank == 1) {
        EXPECT_TRUE(box->progress().is_ok());
        if (!answer) answer = box->receive(Rank(0)).value();
      } else {
        EXPECT_TRUE(services[rank == 0 ? 0 : 1]->progress().is_ok());
      }
      return answer.has_value();
    });
    ASSERT_TRUE(has_answer) << why;
    const GroupMessage refusal = decode(*answer, 3).value();
    EXPECT_EQ(refusal.kind, MessageKind::kRefused);
    EXPECT_EQ(refusal.code, code) << refusal.text;
    EXPECT_THAT(refusal.text, HasSubstr(why));
  }

  static MailboxMessage say(MessageKind kind, std::uint64_t number, std::uint64_t iteration = 0) {
    GroupMessage message;
    message.kind = kind;
    message.number = number;
    message.iteration = iteration;
    return encode(message);
  }

  HostileWorld world;
  std::vector<std::unique_ptr<GroupService>> services;  // of ranks 0 and 2
  std::unique_ptr<Mailboxes> box;
};

TEST_F(HostileWorker, IsRefusedAndHarmsNoOther) {
  expect_refusal({1, text("garbage")}, Code::kCorrupted, "no such kind");
  expect_refusal({1, {}}, Code::kCorrupted, "no such kind");
  expect_refusal(say(MessageKind::kOver, 0), Code::kCorrupted, "does not send that");
  expect_refusal(say(MessageKind::kDone, 99), Code::kInvalidArgument, "no group 99 yet");
  expect_refusal(say(MessageKind::kFail, 99), Code::kInvalidArgument, "no group 99 yet");
  expect_refusal(say(MessageKind::kAsk, 99, 1), Code::kInvalidArgument, "group 99 is done");
  expect_refusal(say(MessageKind::kResume, 99), Code::kInvalidArgument, "former master's group 99");
  expect_refusal(say(MessageKind::kDone, ~std::uint64_t{0}), Code::kCorrupted, "beyond all");

  // Ranks 0 and 2 get their groups.
  std::vector<bool> is_served(2);
  ASSERT_TRUE(services[0]->ask(0).is_ok());
  ASSERT_TRUE(services[1]->ask(0).is_ok());
  EXPECT_TRUE(world.run([&](int rank) {
    if (rank == 1) return is_served[0] && is_served[1];
    const std::size_t index = rank == 0 ? 0 : 1;
    EXPECT_TRUE(services[index]->progress().is_ok());
    if (services[index]->poll()) is_served[index] = true;
    return is_served[0] && is_served[1];
  }));
}

// Rank 0 is the master, and sends rank 1 what no master sends.
class HostileMaster : public ::testing::Test {
 protected:
  HostileMaster() : world(0, 2) {
    GroupServiceOptions options;
    options.groups.layout = {1, 2};
    options.groups.group_size = 2;
    service = GroupService::create(world.fabric(1), options).value();
    const Bytes offer =
        world.fabric(0).bootstrap().lookup("mailbox/groups/world/1", Duration::zero()).value();
    ByteReader reader(offer);
    (void)reader.number<std::uint32_t>();
    const auto terms = reader.blob();
    box = std::make_unique<Mailboxes>(world.fabric(0), "groups/world",
                                      Bytes(terms.begin(), terms.end()));
    EXPECT_TRUE(box->publish().is_ok());
  }

  // The error that the worker's progress() returns after a message, and in all later calls.
  Status tell(const MailboxMessage& message) {
    EXPECT_TRUE(box->send(Rank(1), message).is_ok());
    Status status;
    const bool has_failed = world.run([&](int rank) {
      const Status moved = rank == 0 ? box->progress() : Status::ok();
      EXPECT_TRUE(moved.is_ok()) << moved.to_string();
      if (rank == 1) status = service->progress();
      return status.is_error();
    });
    EXPECT_TRUE(has_failed);
    EXPECT_EQ(service->progress().code(), status.code());
    EXPECT_EQ(service->ask(0).code(), status.code());
    EXPECT_EQ(status.peer(), Rank(0));
    return status;
  }

  HostileWorld world;
  std::unique_ptr<GroupService> service;
  std::unique_ptr<Mailboxes> box;
};

TEST_F(HostileMaster, MayNotSendGarbage) {
  EXPECT_EQ(tell({1, text("garbage")}).code(), Code::kCorrupted);
}

TEST_F(HostileMaster, MayNotHaveUsJoinTheGroupsOfOthers) {
  GroupMessage join;
  join.kind = MessageKind::kJoin;
  join.number = 1;
  join.ranks = {Rank(0)};
  EXPECT_THAT(tell(encode(join)).to_string(), HasSubstr("join group 1, of which it is no member"));
}

TEST_F(HostileMaster, MayNotEndTheTraining) {
  GroupMessage over;
  over.kind = MessageKind::kOver;
  EXPECT_EQ(tell(encode(over)).code(), Code::kCorrupted);
}

TEST_F(HostileMaster, IsHeardWhenItRefuses) {
  GroupMessage refusal;
  refusal.kind = MessageKind::kRefused;
  refusal.code = Code::kInvalidArgument;
  refusal.text = "for a test";
  const Status status = tell(encode(refusal));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.to_string(), HasSubstr("rank 0, which serves them, refuses: for a test"));
}

}  // namespace
}  // namespace dunlin::testing
