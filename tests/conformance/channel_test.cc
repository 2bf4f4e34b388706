// The NOTIFY-ACK queue of one edge, on every transport: credit, order, exactly once.
#include <gtest/gtest.h>

#include <memory>

#include "tests/support/ranks.h"
#include "transports/channel/queue.h"

namespace dunlin::testing {
namespace {

using transport::Completion;
using transport::Fabric;
using transport::kInlineBytes;
using transport::ReceiveQueue;
using transport::SendQueue;
using transport::SlotExchange;
using transport::SlotOptions;

class ChannelTest : public ::testing::TestWithParam<PeerKind> {
 protected:
  void run(const RankBody& body, int size = 2) {
    run_ranks({.kind = GetParam(), .size = size, .killed = {}, .configure = {}}, body);
  }
};

// An edge in each direction between ranks 0 and 1.
struct Duplex {
  std::unique_ptr<SlotExchange> exchange;
  std::unique_ptr<SendQueue> send;
  std::unique_ptr<ReceiveQueue> receive;

  Duplex(Fabric& fabric, std::size_t slot_bytes, std::uint32_t depth) {
    const Rank peer(1 - fabric.rank().value());
    exchange =
        SlotExchange::prepare(fabric, {"duplex", 0, {peer}, {peer}, slot_bytes, depth}).value();
    const Status status = exchange->connect();
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    sync(fabric, "connected");
    send = std::make_unique<SendQueue>(*exchange, exchange->out()[0]);
    receive = std::make_unique<ReceiveQueue>(*exchange, exchange->in()[0]);
  }
};

TEST_P(ChannelTest, ASenderStopsAtDepthAndGoesOnWithEachAck) {
  run([](Fabric& fabric) {
    constexpr std::uint32_t kDepth = 3;
    Duplex edge(fabric, 4096, kDepth);
    const std::byte byte{42};
    if (fabric.rank() == Rank(0)) {
      const auto post_one = [&] {
        return post(fabric, [&] { return edge.send->try_send_inline({&byte, 1}, 0); });
      };
      for (std::uint32_t i = 0; i < kDepth; ++i) ASSERT_TRUE(post_one().is_ok());
      EXPECT_FALSE(edge.send->has_credit());
      EXPECT_TRUE(edge.send->try_send_inline({&byte, 1}, 0).is_busy());
      ASSERT_TRUE(fabric.bootstrap().publish("full", {}).is_ok());
      ASSERT_TRUE(progress_until(fabric, [&] { return edge.send->has_credit(); }));
      EXPECT_EQ(edge.send->acknowledged(), 1u);
      ASSERT_TRUE(post_one().is_ok());
      EXPECT_FALSE(edge.send->has_credit());
      ASSERT_TRUE(fabric.bootstrap().publish("full again", {}).is_ok());
      ASSERT_TRUE(progress_until(fabric, [&] { return edge.send->acknowledged() == kDepth + 1; }));
    } else {
      const auto take = [&] {
        ASSERT_TRUE(progress_until(fabric, [&] { return edge.receive->poll().has_value(); }));
      };
      const auto await = [&](const char* event) {
        ASSERT_TRUE(progress_until(fabric, [&] {
          return fabric.bootstrap().lookup(event, std::chrono::milliseconds(1)).is_ok();
        }));
      };
      // All of them can be held at once, and nothing else arrives.
      for (std::uint32_t i = 0; i < kDepth; ++i) take();
      await("full");
      EXPECT_FALSE(edge.receive->has_message());
      const auto release = [&] { ASSERT_FALSE(edge.receive->release().is_error()); };
      release();
      ASSERT_TRUE(post(fabric, [&] { return edge.receive->progress(); }).is_ok());
      take();
      await("full again");
      for (std::uint32_t i = 0; i < kDepth; ++i) release();
      ASSERT_TRUE(post(fabric, [&] { return edge.receive->progress(); }).is_ok());
      EXPECT_EQ(edge.receive->release().code(), Code::kInvalidArgument);
      // On transports that send ACKs by message, the sender's last waits need this rank's progress.
      Completion done;
      ASSERT_TRUE(post(fabric, [&] {
                    return edge.exchange->in()[0].link->control().flush(
                        transport::Visibility::kRemote, &done);
                  }).is_ok());
      ASSERT_TRUE(progress_until(fabric, [&] { return done.is_done(); }));
    }
  });
}

// An ACK of an exchange that used the cell before, which arrives late, is worth no credit: neither
// one that counts more messages than were sent, nor one that counts fewer.
TEST_P(ChannelTest, LateAcksOfFormerUsersOfACellAreWorthNothing) {
  run([](Fabric& fabric) {
    constexpr std::uint32_t kDepth = 2;
    Duplex edge(fabric, 4096, kDepth);
    if (fabric.rank() == Rank(0)) {
      const std::byte byte{42};
      const auto post_one = [&] {
        return post(fabric, [&] { return edge.send->try_send_inline({&byte, 1}, 0); });
      };
      for (std::uint32_t i = 0; i < kDepth; ++i) ASSERT_TRUE(post_one().is_ok());
      transport::NotifyCell& cell = fabric.board().cell(edge.exchange->out()[0].ack_cell);
      for (const std::uint64_t late : {1U, 2U, 100U}) {
        transport::Notification ack;
        ack.sequence = late;
        cell.publish(ack);
        EXPECT_FALSE(edge.send->has_credit()) << late;
        EXPECT_EQ(edge.send->acknowledged(), 0u) << late;
        EXPECT_TRUE(edge.send->try_send_inline({&byte, 1}, 0).is_busy()) << late;
      }
    }
    sync(fabric, "done");
  });
}

// Both directions, all sizes around the inline limit and up to the slot's, with contents and tags
// checked.
TEST_P(ChannelTest, MessagesArriveInOrderExactlyOnceUnderLoad) {
  run([](Fabric& fabric) {
    constexpr std::uint64_t kMessages = 3000;
    constexpr std::size_t kSlot = 20'000;
    Duplex edge(fabric, kSlot, 4);
    const auto size_of = [](std::uint64_t i) {
      return i % 3 == 0 ? i / 3 % (kInlineBytes + 2) : i * 6151 % (kSlot + 1);
    };
    auto source = fabric.allocate(kSlot).value();
    Completion completion;
    bool is_free = true;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    ASSERT_TRUE(progress_until(fabric,
                               [&] {
                                 if (!is_free && completion.is_done()) {
                                   EXPECT_TRUE(completion.status().is_ok());
                                   completion.reset();
                                   is_free = true;
                                 }
                                 if (is_free && sent < kMessages) {
                                   const std::size_t size = size_of(sent);
                                   fill(source->memory()->bytes().first(size), sent);
                                   const Status status = edge.send->try_send(
                                       source->slice(0, size).value(), sent * 11, &completion);
                                   EXPECT_FALSE(status.is_error()) << status.to_string();
                                   if (status.is_ok()) {
                                     ++sent;
                                     is_free = false;
                                   }
                                 }
                                 if (const auto message = edge.receive->poll()) {
                                   EXPECT_EQ(message->sequence, received + 1);
                                   EXPECT_EQ(message->tag, received * 11);
                                   EXPECT_EQ(message->data.size(), size_of(received));
                                   EXPECT_TRUE(is_filled(message->data, received)) << received;
                                   ++received;
                                   EXPECT_FALSE(edge.receive->release().is_error());
                                 }
                                 EXPECT_FALSE(edge.receive->progress().is_error());
                                 return ::testing::Test::HasFailure() ||
                                        (sent == kMessages && received == kMessages &&
                                         edge.send->acknowledged() == kMessages);
                               }))
        << sent << " sent, " << received << " received, " << edge.send->acknowledged()
        << " acknowledged";
    // Without this, a sender that is done would leave its peer without progress.
    Completion flushed;
    ASSERT_TRUE(post(fabric, [&] {
                  return edge.exchange->in()[0].link->control().flush(
                      transport::Visibility::kRemote, &flushed);
                }).is_ok());
    ASSERT_TRUE(progress_until(fabric, [&] { return flushed.is_done(); }));
  });
}

// The sender writes the length of a message. The receiver must not read beyond the slot for it.
TEST_P(ChannelTest, AMessageEndsWithItsSlotWhateverItsLength) {
  run([](Fabric& fabric) {
    constexpr std::size_t kSlot = 100;
    Duplex edge(fabric, kSlot, 2);
    if (fabric.rank() == Rank(0)) {
      const auto source = fabric.allocate(kSlot).value();
      const transport::LocalSlice payload = source->slice(0, kSlot).value();
      Completion sent;
      ASSERT_TRUE(post(fabric, [&] { return edge.send->try_send(payload, 7, &sent); }).is_ok());
      EXPECT_TRUE(progress_until(fabric, [&] { return sent.is_done(); }));
    } else {
      ASSERT_TRUE(progress_until(fabric, [&] { return edge.receive->has_message(); }));
      fabric.board().cell(edge.exchange->in()[0].first_cell).length = 1 << 20;
      const auto message = edge.receive->poll();
      EXPECT_EQ(message->tag, 7u);
      EXPECT_EQ(message->data.size(), kSlot);
    }
    sync(fabric, "done");
  });
}

TEST_P(ChannelTest, WhatDoesNotFitTheSlotIsRefused) {
  run([](Fabric& fabric) {
    Duplex edge(fabric, 1000, 2);
    auto source = fabric.allocate(4096).value();
    EXPECT_EQ(edge.send->try_send(source->slice(0, 1001).value(), 0, nullptr).code(),
              Code::kOutOfRange);
    EXPECT_EQ(edge.send->sent(), 0u);
  });
}

TEST_P(ChannelTest, NeighborsThatDisagreeAreTold) {
  run([](Fabric& fabric) {
    const Rank peer(1 - fabric.rank().value());
    const auto connect = [&](SlotOptions options) {
      auto exchange = SlotExchange::prepare(fabric, std::move(options));
      return exchange ? (*exchange)->connect() : exchange.status();
    };
    const bool is_first = fabric.rank() == Rank(0);
    EXPECT_EQ(connect({"depths", 0, {peer}, {peer}, 64, is_first ? 1u : 2u}).code(),
              Code::kInvalidArgument);
    SlotOptions typed{"types", 0, {peer}, {peer}, 64, 1};
    typed.terms = is_first ? "float32 x 16" : "float64 x 8";
    const Status types = connect(typed);
    EXPECT_EQ(types.code(), Code::kInvalidArgument);
    EXPECT_NE(types.message().find(is_first ? "'float64 x 8', this rank 'float32 x 16'"
                                            : "'float32 x 16', this rank 'float64 x 8'"),
              std::string::npos)
        << types.to_string();
    // Rank 0 has an edge that rank 1 does not have.
    const Status status =
        is_first ? connect({"edges", 0, {}, {peer}, 64, 1}) : connect({"edges", 0, {}, {}, 64, 1});
    EXPECT_EQ(status.code(), is_first ? Code::kInvalidArgument : Code::kOk) << status.to_string();
    EXPECT_EQ(connect({"twice", 0, {peer, peer}, {}, 64, 1}).code(), Code::kInvalidArgument);
    EXPECT_EQ(connect({"none", 0, {peer}, {}, 64, 0}).code(), Code::kInvalidArgument);
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, ChannelTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

}  // namespace
}  // namespace dunlin::testing
