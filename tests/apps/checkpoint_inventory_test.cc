#include "apps/checkpoint_inventory.h"

#include <gtest/gtest.h>

namespace dunlin {
namespace {

// checkpoint_search_test.cc tests which checkpoints are complete, and what is said of the others.

TEST(CheckpointReport, IsDecodedWholeOrNotAtAll) {
  CheckpointReport report;
  report.host = "host-7";
  report.states = {{{1, 4, 30}, 5, 3000}, {{1, 4, 40}, 5, 4000}};
  report.problems[{1, 4, 50}] = "model.1-of-4.50: the checkpoint is cut short";
  const Bytes bytes = report.encode();
  const auto decoded = CheckpointReport::decode(bytes);
  ASSERT_TRUE(decoded.is_ok());
  EXPECT_EQ(decoded->host, report.host);
  EXPECT_EQ(decoded->problems, report.problems);
  ASSERT_EQ(decoded->states.size(), 2U);
  EXPECT_EQ(decoded->states[1].name, report.states[1].name);
  EXPECT_EQ(decoded->states[1].run, 5U);
  EXPECT_EQ(decoded->states[1].done, 4000U);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const auto cut = CheckpointReport::decode(std::span(bytes).first(length));
    EXPECT_EQ(cut.status().code(), Code::kCorrupted) << length;
  }
}

// The list of a checkpoint's iterations has a place for each rank that saved it, and no more.
TEST(CheckpointReport, NamesNoRankBeyondThoseThatSaved) {
  for (const CheckpointName name : {CheckpointName{4, 4, 30}, CheckpointName{0, 0, 30}}) {
    CheckpointReport report;
    report.states = {{name, 5, 3000}};
    EXPECT_EQ(CheckpointReport::decode(report.encode()).status().code(), Code::kCorrupted);
    report.states.clear();
    report.problems[name] = "the checkpoint is cut short";
    EXPECT_EQ(CheckpointReport::decode(report.encode()).status().code(), Code::kCorrupted);
  }
}

}  // namespace
}  // namespace dunlin
