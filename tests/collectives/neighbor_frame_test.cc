// Messages of several parts between neighbors: a composed message comes apart into its parts, which
// are aligned. Damage is reported, and nothing beyond the message is read.
#include "collectives/neighbor/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace dunlin::collective::neighbor {
namespace {

using Message = std::vector<std::byte>;

Part part(Kind kind, std::span<const std::byte> bytes, std::uint64_t key = 7) {
  Part made;
  made.header.kind = kind;
  made.header.key = key;
  made.header.sequence = 3;
  made.header.bytes = kind == Kind::kEager ? bytes.size() : 1'000'000;
  made.header.weight = 0.25;
  if (kind == Kind::kEager) made.bytes = bytes;
  return made;
}

Message message_of(Frame& frame) {
  Message message;
  for (const auto piece : frame.pieces()) message.insert(message.end(), piece.begin(), piece.end());
  return message;
}

// A copy at the end of its memory, so that a sanitizer finds reads beyond it.
Status check(const Message& message) {
  const Message own(message);
  return check_frame(own);
}

struct Made {
  std::vector<Message> data;
  std::vector<Part> parts;
  Message message;
};

Made make(std::mt19937_64& random) {
  Made made;
  const std::size_t count = 1 + random() % 8;
  made.data.resize(count);
  Frame frame;
  for (Message& data : made.data) {
    data.resize(random() % 100);
    std::ranges::generate(data, [&] { return static_cast<std::byte>(random()); });
    const auto kind = static_cast<Kind>(random() % 5);
    frame.add(made.parts.emplace_back(part(kind, data, random())));
  }
  EXPECT_EQ(frame.size(), count);
  made.message = message_of(frame);
  EXPECT_LE(made.message.size(), frame.bytes());
  return made;
}

TEST(NeighborFrame, PartsComeApartAsTheyWerePut) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {
    const Made made = make(random);
    ASSERT_TRUE(check(made.message).is_ok()) << check(made.message).to_string();
    std::span<const std::byte> rest = made.message;
    for (const Part& put : made.parts) {
      ASSERT_FALSE(rest.empty());
      const Part taken = take_part(rest);
      EXPECT_EQ(taken.header.key, put.header.key);
      EXPECT_EQ(taken.header.kind, put.header.kind);
      EXPECT_EQ(taken.header.bytes, put.header.bytes);
      EXPECT_EQ(taken.header.weight, put.header.weight);
      EXPECT_TRUE(std::ranges::equal(taken.bytes, put.bytes));
      EXPECT_EQ((taken.bytes.data() - made.message.data()) % 8, 0) << "numbers need it";
    }
    EXPECT_TRUE(rest.empty());
  }
}

TEST(NeighborFrame, OnePartIsItsHeaderAndItsBytes) {
  const Message data(13, std::byte{9});
  Frame frame;
  frame.add(part(Kind::kEager, data));
  EXPECT_EQ(message_of(frame).size(), sizeof(Header) + 13);
  EXPECT_EQ(frame.bytes(), part_bytes(13));
  frame.clear();
  frame.add(part(Kind::kReady, {}));
  EXPECT_EQ(message_of(frame).size(), sizeof(Header));
}

TEST(NeighborFrame, DamageIsTold) {
  const Message data(20, std::byte{1});
  Frame frame;
  frame.add(part(Kind::kEager, data));
  frame.add(part(Kind::kEager, data));
  const Message whole = message_of(frame);
  const std::size_t second = part_bytes(20);
  const auto told = [](const Message& message) {
    const Status status = check(message);
    EXPECT_EQ(status.code(), Code::kCorrupted) << status.to_string();
    return std::string(status.message());
  };
  EXPECT_NE(told({}).find("nothing"), std::string::npos);
  // Cut off anywhere but at the end of the first part, with its fill or without.
  for (std::size_t size = 1; size < whole.size(); ++size) {
    if (size >= sizeof(Header) + 20 && size <= second) continue;
    told(Message(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
  }
  Message damaged = whole;
  damaged.resize(whole.size() + 8);
  EXPECT_NE(told(damaged).find("no header, at byte"), std::string::npos) << told(damaged);
  damaged = whole;
  damaged[second + offsetof(Header, kind)] = std::byte{200};
  EXPECT_NE(told(damaged).find("unknown kind 200 at byte 64"), std::string::npos) << told(damaged);
  damaged = whole;
  const std::uint64_t huge = ~std::uint64_t{0} - 3;
  std::memcpy(damaged.data() + second + offsetof(Header, bytes), &huge, sizeof huge);
  EXPECT_NE(told(damaged).find("where 20 are left at byte 64"), std::string::npos) << told(damaged);
}

// Messages that pass check_frame() can be taken apart without reading beyond them.
TEST(NeighborFrame, NoDamageLeadsBeyondTheMessage) {
  std::mt19937_64 random(2);
  int right = 0;
  int wrong = 0;
  for (int round = 0; round < 20'000; ++round) {
    Message message = make(random).message;
    for (std::uint64_t flips = 1 + random() % 4; flips > 0; --flips) {
      message[random() % message.size()] = static_cast<std::byte>(random());
    }
    if (random() % 2 == 0) message.resize(random() % (message.size() + 20));
    message.shrink_to_fit();
    if (!check(message).is_ok()) {
      ++wrong;
      continue;
    }
    ++right;
    std::span<const std::byte> rest = message;
    std::size_t sum = 0;
    while (!rest.empty()) {
      for (const std::byte each : take_part(rest).bytes) sum += std::to_integer<std::size_t>(each);
    }
    EXPECT_LE(sum, message.size() * 255);
  }
  EXPECT_GT(right, 1000);
  EXPECT_GT(wrong, 1000);
}

}  // namespace
}  // namespace dunlin::collective::neighbor
