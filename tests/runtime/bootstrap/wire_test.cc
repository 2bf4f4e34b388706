#include "runtime/bootstrap/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/bootstrap/constants.h"

namespace dunlin::bootstrap {
namespace {

using ::testing::HasSubstr;

Message sample() {
  return {.type = MessageType::kReply,
          .code = Code::kPeerDead,
          .state = PeerState::kStalled,
          .subject = Rank(7),
          .request = 0x0102030405060708,
          .number = 99,
          .text = "a barrier",
          .value = {std::byte{1}, std::byte{2}},
          .ranks = {Rank(0), Rank(3)}};
}

std::string error_of(const Bytes& bytes, std::size_t limit = kMaxBodyBytes) {
  std::size_t consumed = 0;
  return decode(bytes, limit, consumed).status().to_string();
}

TEST(Wire, MessagesComeBackAsTheyWere) {
  const Bytes bytes = encode(sample());
  std::size_t consumed = 0;
  const auto message = decode(bytes, kMaxBodyBytes, consumed).value();
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(consumed, bytes.size());
  EXPECT_EQ(encode(*message), bytes);
  EXPECT_EQ(message->text, "a barrier");
  EXPECT_EQ(message->request, 0x0102030405060708);
  EXPECT_EQ(message->ranks, (std::vector<Rank>{Rank(0), Rank(3)}));
}

TEST(Wire, AValueThatManyRanksGetTravelsAsTheirOwn) {
  const Bytes value(100, std::byte{7});
  const Bytes bytes =
      encode({.type = MessageType::kReply, .shared_value = std::make_shared<const Bytes>(value)});
  EXPECT_EQ(bytes, encode({.type = MessageType::kReply, .value = value}));
  std::size_t consumed = 0;
  EXPECT_EQ(decode(bytes, kMaxBodyBytes, consumed).value()->value, value);
}

TEST(Wire, TheHeaderIsLittleEndianAndNeverChanges) {
  const Bytes bytes = encode({.type = MessageType::kHeartbeat});
  const unsigned char expected[] = {'D', 'L', 'N', '1', 9, 0, 22, 0, 33, 0, 0, 0};
  ASSERT_GE(bytes.size(), sizeof expected);
  for (std::size_t i = 0; i < sizeof expected; ++i) {
    EXPECT_EQ(static_cast<unsigned char>(bytes[i]), expected[i]) << "byte " << i;
  }
}

TEST(Wire, EveryPrefixIsIncomplete) {
  const Bytes bytes = encode(sample());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    std::size_t consumed = 1;
    const auto message = decode(std::span(bytes).first(length), kMaxBodyBytes, consumed);
    ASSERT_TRUE(message.is_ok()) << length;
    EXPECT_FALSE(message->has_value());
    EXPECT_EQ(consumed, 0U);
  }
}

TEST(Wire, AnyFlippedByteIsAnErrorOrAnotherMessage) {
  const Bytes good = encode(sample());
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const unsigned flip : {0x01U, 0x80U, 0xffU}) {
      Bytes bytes = good;
      bytes[at] ^= static_cast<std::byte>(flip);
      std::size_t consumed = 0;
      const auto message = decode(bytes, kMaxBodyBytes, consumed);
      if (message && message->has_value()) {
        EXPECT_NE(encode(**message), good) << at;
      }
    }
  }
}

TEST(Wire, AListOfRanksThatEndsWithinARankIsRefused) {
  Bytes bytes = encode(sample());
  bytes.pop_back();
  bytes[8] = static_cast<std::byte>(bytes.size() - kHeaderBytes);
  // The length of the list, which stands before its two ranks.
  bytes[bytes.size() - 7 - 4] = std::byte{7};
  EXPECT_THAT(error_of(bytes), HasSubstr("body does not match its length"));
}

TEST(Wire, GarbageOversizeAndOtherVersionsAreNamed) {
  EXPECT_THAT(error_of({std::byte{'G'}}), HasSubstr("not Dunlin's protocol"));
  Bytes bytes = encode(sample());
  EXPECT_THAT(error_of(bytes, 10), HasSubstr("larger than the 10 bytes allowed"));
  bytes[4] = std::byte{10};
  EXPECT_THAT(error_of(bytes), HasSubstr("the peer has protocol version 10, this build version 9"));
}

}  // namespace
}  // namespace dunlin::bootstrap
