// The wire format of the verbs transport: short notifications, addresses, connection messages. Also
// its timeouts.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <span>

#include "transports/verbs/connect/session.h"
#include "transports/verbs/connect/wire.h"
#include "transports/verbs/constants.h"

namespace dunlin::transport::verbs {
namespace {

Notification notification(std::uint32_t cell, std::uint64_t sequence, std::uint32_t length = 0) {
  return {NotifyId{cell}, sequence, 0, length, {}};
}

TEST(ShortFormTest, ComesBackFromItsImmediate) {
  for (const std::uint16_t number : {0, 1, 2048, 4095}) {
    for (const std::uint64_t step : {0U, 1U, 2U, 262143U}) {
      for (const bool counts_bytes : {false, true}) {
        const std::uint32_t bytes = counts_bytes ? 4096 : 0;
        const auto form =
            ShortForm::of(notification(1, 1000 + step, bytes), number, {1000, 0}, 4096);
        ASSERT_TRUE(form);
        const auto back = ShortForm::decode(form->encode());
        ASSERT_TRUE(back);
        EXPECT_EQ(back->number, number);
        EXPECT_EQ(back->step, step);
        EXPECT_EQ(back->counts_bytes, counts_bytes);
      }
    }
  }
}

TEST(ShortFormTest, WhatSaysMoreNeedsARecord) {
  const std::byte byte{};
  Notification tagged = notification(1, 5);
  tagged.tag = 1;
  Notification loaded = notification(1, 5);
  loaded.inline_data = {&byte, 1};
  const auto form = [](const Notification& notification, const CellState& last) {
    return ShortForm::of(notification, 1, last, 8);
  };
  EXPECT_TRUE(form(notification(1, 5), {4, 0}));
  EXPECT_FALSE(form(tagged, {4, 0}));
  EXPECT_TRUE(form(tagged, {4, 1})) << "the tag of the one before";
  EXPECT_FALSE(form(notification(1, 5), {4, 1})) << "no tag after one";
  EXPECT_FALSE(form(loaded, {4, 0}));
  EXPECT_FALSE(form(notification(1, 5, 7), {4, 0})) << "another length than the bytes'";
  EXPECT_FALSE(form(notification(1, 3), {4, 0})) << "backwards";
  EXPECT_FALSE(form(notification(1, 4 + 262144), {4, 0})) << "too far";
}

template <typename T>
std::span<const std::byte> bytes_of(const T& sent) {
  return std::as_bytes(std::span(&sent, 1));
}

TEST(ConnectionTest, AnAnswerIsOfThisVersionAndHasAMailbox) {
  Answer answer{};
  answer.version = kWireVersion;
  answer.slots = 4;
  answer.taken = 2;
  const auto decoded = Answer::decode(bytes_of(answer));
  ASSERT_TRUE(decoded.is_ok());
  EXPECT_EQ(decoded->taken, 2u);
  EXPECT_EQ(Answer::decode(bytes_of(answer).first(sizeof answer - 1)).status().code(),
            Code::kCorrupted);
  Answer other_build = answer;
  other_build.version = kWireVersion + 1;
  EXPECT_EQ(Answer::decode(bytes_of(other_build)).status().code(), Code::kCorrupted);
  Answer no_mailbox = answer;
  no_mailbox.slots = 0;
  EXPECT_EQ(Answer::decode(bytes_of(no_mailbox)).status().code(), Code::kCorrupted);
}

TEST(ConnectionTest, ARequestIsOfThisJob) {
  constexpr std::uint64_t kToken = 77;
  constexpr std::size_t kRanks = 3;
  const Request valid{kToken, 2, kWireVersion, LaneKind::kData, 0, 1};
  const auto code = [](const Request& request) {
    return Request::decode(bytes_of(request), kToken, kRanks).status().code();
  };
  EXPECT_EQ(code(valid), Code::kOk);
  Request changed = valid;
  changed.token = kToken + 1;
  EXPECT_EQ(code(changed), Code::kCorrupted);
  changed = valid;
  changed.source = kRanks;
  EXPECT_EQ(code(changed), Code::kCorrupted);
  changed = valid;
  changed.lane = LaneKind::kControl;
  EXPECT_EQ(code(changed), Code::kCorrupted) << "rails belong to the data lane";
  changed = valid;
  changed.lane = static_cast<LaneKind>(2);
  EXPECT_EQ(code(changed), Code::kCorrupted);
  changed = valid;
  changed.version = kWireVersion + 1;
  EXPECT_EQ(code(changed), Code::kUnavailable);
  const auto cut = bytes_of(valid).first(sizeof valid - 1);
  EXPECT_EQ(Request::decode(cut, kToken, kRanks).status().code(), Code::kCorrupted);
}

TEST(ShortFormTest, CellsOfRecordsAndServicesAreNone) {
  for (const std::uint32_t immediate :
       {0U, 16383U, kServiceImmediate - 1, kServiceImmediate, kRevoked, kLanded}) {
    EXPECT_FALSE(ShortForm::decode(immediate)) << immediate;
  }
}

TEST(LandingTest, ComesBackFromItsRecordAndFromNoOther) {
  Record record{};
  record.set(Landing{7, std::uint64_t{1} << 40, (std::uint64_t{1} << 33) + 1});
  EXPECT_TRUE(record.notification(kLanded, record.wire_size()));
  const auto landing = record.landing();
  ASSERT_TRUE(landing);
  EXPECT_EQ(landing->region, 7u);
  EXPECT_EQ(landing->offset, std::uint64_t{1} << 40);
  EXPECT_EQ(landing->size, (std::uint64_t{1} << 33) + 1);
  record.set(notification(1, 7), 3);
  EXPECT_FALSE(record.landing());
}

TEST(RecordTest, HasACellOfALargeBoardAndANumber) {
  constexpr std::uint32_t kLastCell = (1U << 26) - 1;
  static_assert(kLastCell < kServiceImmediate);
  Record record{};
  record.set(notification(kLastCell, 7), kCellNumbers - 1);
  const auto back = record.notification(kLastCell, record.wire_size());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->id, NotifyId{kLastCell});
  EXPECT_EQ(record.number, kCellNumbers - 1);
  record.number = kCellNumbers;
  EXPECT_FALSE(record.notification(kLastCell, record.wire_size())) << "no such number";
}

TEST(ConnectionMessageTest, ComesBackAndNothingElseDoes) {
  ConnectionMessage message{.kind = MessageKind::kAnswer, .initiator = 3, .session = 17};
  message.is_for_initiator = true;
  message.port = 3;
  message.place = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, 42, 0xabcdef, 7, 5};
  message.reads = 16;
  message.private_data = {std::byte{1}, std::byte{2}};
  const Bytes encoded = message.encode(1111, 2222);
  std::uint64_t target = 0;
  const auto back = ConnectionMessage::decode(encoded, target);
  ASSERT_TRUE(back) << back.status().to_string();
  EXPECT_EQ(target, 1111u);
  EXPECT_EQ(back->sender, 2222u);
  EXPECT_EQ(back->kind, MessageKind::kAnswer);
  EXPECT_EQ(back->initiator, 3u);
  EXPECT_EQ(back->port, 3);
  EXPECT_EQ(back->session, 17u);
  EXPECT_TRUE(back->is_for_initiator);
  EXPECT_EQ(std::memcmp(&back->place, &message.place, sizeof message.place), 0);
  EXPECT_EQ(back->reads, 16);
  EXPECT_EQ(back->private_data, message.private_data);
  for (std::size_t size = 0; size < encoded.size(); ++size) {
    EXPECT_FALSE(ConnectionMessage::decode(std::span(encoded).first(size), target)) << size;
  }
}

TEST(AddressTest, ComesBackAndNothingElseDoes) {
  Address address;
  address.token = 0x0123456789abcdef;
  address.ports = {{"10.1.2.3", 4711, false}, {"", 0, true, 0xfe80, true}};
  for (const auto atomics : {std::optional<AtomicScope>(), std::optional(AtomicScope::kTransport),
                             std::optional(AtomicScope::kSystem)}) {
    address.atomics = atomics;
    address.ports.front().is_infiniband = !address.ports.front().is_infiniband;
    Bytes encoded = address.encode();
    const auto back = Address::decode(encoded);
    ASSERT_TRUE(back) << back.status().to_string();
    EXPECT_EQ(back->token, address.token);
    ASSERT_EQ(back->ports.size(), address.ports.size());
    for (std::size_t i = 0; i < address.ports.size(); ++i) {
      EXPECT_EQ(back->ports[i].ip, address.ports[i].ip);
      EXPECT_EQ(back->ports[i].ip_port, address.ports[i].ip_port);
      EXPECT_EQ(back->ports[i].is_infiniband, address.ports[i].is_infiniband);
      EXPECT_EQ(back->ports[i].subnet, address.ports[i].subnet);
      EXPECT_EQ(back->ports[i].prefers_manager, address.ports[i].prefers_manager);
    }
    EXPECT_EQ(back->atomics, atomics);
    EXPECT_FALSE(Address::decode(std::span(encoded).first(encoded.size() - 1)));
    encoded.back() = std::byte{9};
    EXPECT_FALSE(Address::decode(encoded));
    encoded.front() = std::byte{0xff};
    EXPECT_EQ(Address::decode(encoded).status().code(), Code::kUnavailable) << "another version";
  }
}

TEST(AddressTest, HasAPortAndNotTooMany) {
  Address address;
  EXPECT_FALSE(Address::decode(address.encode()));
  address.ports.resize(kMostPorts);
  EXPECT_TRUE(Address::decode(address.encode()));
  address.ports.resize(kMostPorts + 1);
  EXPECT_EQ(Address::decode(address.encode()).status().code(), Code::kCorrupted);
}

// close() waits long enough for a packet that was lost just before it to be sent again.
TEST(DeliveryTest, ClosingWaitsForTwoTimeouts) {
  Config config;
  const auto grace = [&config](std::int64_t timeout) {
    config.verbs_timeout = timeout;
    return Delivery(config).close_grace();
  };
  EXPECT_EQ(grace(14), kCloseGrace);
  EXPECT_EQ(grace(18), 2 * std::chrono::nanoseconds(4096 << 18));
  EXPECT_EQ(grace(31), kLongestCloseGrace);
}

}  // namespace
}  // namespace dunlin::transport::verbs
