// How short notifications name their cells, between a sending and a receiving end without a device.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <vector>

#include "transports/verbs/path/cell_numbers.h"

namespace dunlin::transport::verbs {
namespace {

constexpr std::uint32_t kLastCell = (1U << 26) - 1;  // of the largest board

// Both ends of a lane, and the notifications between them.
class Lane {
 public:
  // Returns what the receiver publishes, and counts the short ones.
  Notification send(std::uint32_t cell, std::uint64_t sequence, std::uint64_t tag = 0) {
    const Notification sent{NotifyId{cell}, sequence, tag, 0, {}};
    const auto [number, short_form] = sent_.add(sent, 0);
    Notification taken = sent;
    if (short_form) {
      ++shorts_;
      const auto form = ShortForm::decode(short_form->encode());
      EXPECT_TRUE(form);
      const auto expanded = taken_.expand(*form, 0);
      EXPECT_TRUE(expanded) << "cell " << cell;
      if (expanded) taken = *expanded;
    }
    taken_.note(number, taken);
    return taken;
  }
  // The peer has not taken a notification.
  void refuse(std::uint32_t cell) {
    (void)sent_.add({NotifyId{cell}, 1, 0, 0, {}}, 0);
    sent_.doubt();
  }
  std::size_t shorts() const { return shorts_; }
  const SentCells& sent() const { return sent_; }
  const TakenCells& taken() const { return taken_; }
  void clear() {
    sent_.clear();
    taken_.clear();
  }

 private:
  SentCells sent_;
  TakenCells taken_;
  std::size_t shorts_ = 0;
};

TEST(CellNumbersTest, AnyCellOfALargeBoardTravelsShort) {
  Lane lane;
  for (const std::uint32_t cell : {kLastCell, 0U, 65536U}) {
    for (std::uint64_t sequence = 1; sequence <= 10; ++sequence)
      EXPECT_EQ(lane.send(cell, sequence).sequence, sequence);
  }
  EXPECT_EQ(lane.shorts(), 27u) << "all but the first of each cell";
  EXPECT_EQ(lane.sent().size(), 3u);
  EXPECT_EQ(lane.taken().size(), 3u);
}

TEST(CellNumbersTest, AnUnknownNumberNamesNoCell) {
  TakenCells taken;
  EXPECT_FALSE(taken.expand({0, 1, false}, 0));
  taken.note(5, {NotifyId{1}, 1, 0, 0, {}});
  EXPECT_FALSE(taken.expand({4, 1, false}, 0));
  EXPECT_TRUE(taken.expand({5, 1, false}, 0));
}

TEST(CellNumbersTest, MoreCellsThanNumbersTakeTurns) {
  Lane lane;
  constexpr std::uint32_t kCells = 3 * kCellNumbers;
  for (std::uint64_t sequence = 1; sequence <= 2; ++sequence) {
    for (std::uint32_t cell = 0; cell < kCells; ++cell) {
      const Notification taken = lane.send(cell, sequence);
      ASSERT_EQ(taken.id, NotifyId{cell});
      ASSERT_EQ(taken.sequence, sequence);
    }
  }
  EXPECT_EQ(lane.shorts(), 0u);
  EXPECT_EQ(lane.sent().size(), kCellNumbers);
  EXPECT_EQ(lane.taken().size(), kCellNumbers);
  // The last ones have their numbers still.
  EXPECT_EQ(lane.send(kCells - 1, 3).sequence, 3u);
  EXPECT_EQ(lane.shorts(), 1u);
}

TEST(CellNumbersTest, AfterARefusalOrAClearRecordsComeFirst) {
  Lane lane;
  EXPECT_EQ(lane.send(1, 1).sequence, 1u);
  lane.refuse(2);
  EXPECT_EQ(lane.send(2, 7).sequence, 7u);
  EXPECT_EQ(lane.send(1, 2).sequence, 2u);
  EXPECT_EQ(lane.shorts(), 0u);
  EXPECT_EQ(lane.send(1, 3).sequence, 3u);
  EXPECT_EQ(lane.shorts(), 1u);
  lane.clear();
  EXPECT_EQ(lane.sent().size() + lane.taken().size(), 0u);
  EXPECT_EQ(lane.send(1, 4).sequence, 4u);
  EXPECT_EQ(lane.shorts(), 1u);
}

TEST(CellNumbersTest, ANumberThatLostItsCellStandsForNothing) {
  TakenCells taken;
  taken.note(3, Notification{NotifyId{7}, 1, 0, 0, {}});
  const ShortForm next{.number = 3, .step = 1, .counts_bytes = false};
  EXPECT_EQ(taken.expand(next, 0)->id, NotifyId{7});
  taken.unname(3);
  EXPECT_FALSE(taken.expand(next, 0));
  taken.unname(4);
  EXPECT_EQ(taken.size(), 4u);
  taken.note(3, Notification{NotifyId{8}, 1, 0, 0, {}});
  EXPECT_EQ(taken.expand(next, 0)->id, NotifyId{8});
}

class CellNumbersSeeds : public ::testing::TestWithParam<unsigned> {};

TEST_P(CellNumbersSeeds, BothEndsAgreeWhateverTheOrder) {
  std::mt19937 random(GetParam());
  const auto below = [&](std::uint32_t limit) {
    return static_cast<std::uint32_t>(random()) % limit;
  };
  Lane lane;
  std::map<std::uint32_t, std::uint64_t> sequences;
  const std::uint32_t cells = 1 + below(2 * kCellNumbers);
  const std::uint32_t stride = 1 + below(kLastCell / cells);
  for (int i = 0; i < 50'000; ++i) {
    // Half of the notifications are for few cells.
    const std::uint32_t cell = stride * below(below(2) == 0 ? cells : 1 + cells / 100);
    const std::uint64_t sequence = sequences[cell] += below(3);
    const std::uint64_t tag = below(20) == 0 ? 1 : 0;
    if (below(1000) == 0) lane.refuse(cell);
    const Notification taken = lane.send(cell, sequence, tag);
    ASSERT_EQ(taken.id, NotifyId{cell});
    ASSERT_EQ(taken.sequence, sequence);
    ASSERT_EQ(taken.tag, tag);
  }
  EXPECT_GT(lane.shorts(), 0u);
  EXPECT_LE(lane.sent().size(), kCellNumbers);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CellNumbersSeeds, ::testing::Range(0u, 20u));

}  // namespace
}  // namespace dunlin::transport::verbs
