// The sequence numbers of an executor's messages and probes.
#include <gtest/gtest.h>

#include "collectives/schedule/executor.h"

namespace dunlin::collective {
namespace {

Numbering round(std::uint64_t number) {
  return {Numbering::kMostRoundBits, number};
}

TEST(NumberingTest, CountsMessagesAboveTheRound) {
  for (const std::uint64_t number : {0UL, 1UL, 2047UL, 2048UL, 1'000'003UL}) {
    for (const std::uint64_t count : {1UL, 2UL, 1UL << 40}) {
      const std::uint64_t sequence = round(number).message(count);
      EXPECT_EQ(round(number).count_of(sequence), count);
      EXPECT_TRUE(round(number).is_this_round(sequence));
      EXPECT_FALSE(round(number + 1).is_this_round(sequence));
      EXPECT_FALSE(round(number).is_probe(sequence));
      const std::uint64_t probe = sequence | round(number).probe_bit();
      EXPECT_TRUE(round(number).is_probe(probe));
      EXPECT_TRUE(round(number).is_this_round(probe));
      EXPECT_EQ(round(number).count_of(probe), count);
      EXPECT_GT(probe, sequence);
      // The verbs transport sends steps of up to 2^14 - 1 in short form, in whatever round.
      for (const std::uint64_t later : {0UL, 1UL, 1023UL, 2047UL}) {
        const std::uint64_t next = round(number + later).message(count + 1);
        EXPECT_GT(next, probe);
        EXPECT_LT(next - sequence, 1UL << 14);
      }
    }
  }
}

TEST(NumberingTest, WithoutRoundBitsASequenceNumberIsACount) {
  const Numbering numbering;
  EXPECT_EQ(numbering.message(7), 7u);
  EXPECT_EQ(numbering.count_of(7), 7u);
  EXPECT_TRUE(numbering.is_this_round(7));
  EXPECT_FALSE(numbering.is_probe(7));
}

// A probe stays in its cell until the peer sends a signal. Rounds repeat in the sequence number.
TEST(NumberingTest, AnOldProbeIsNotTakenForANewOne) {
  transport::NotifyCell cell{};
  transport::Notification probe;
  probe.sequence = round(5).message(3) | round(5).probe_bit();
  probe.tag = 42;
  probe.length = round(5).probe_length();
  cell.publish(probe);
  EXPECT_EQ(probed_signature(cell, round(5)), 42u);
  for (const std::uint64_t later : {6UL, 5UL + 1024, 5UL + 2048, 5UL + 4096})
    EXPECT_FALSE(probed_signature(cell, round(later))) << later;
  probe.sequence = round(5).message(4);
  cell.publish(probe);
  EXPECT_FALSE(probed_signature(cell, round(5))) << "a message is no probe";
}

}  // namespace
}  // namespace dunlin::collective
