#include "runtime/bootstrap/paced_log.h"

#include <gtest/gtest.h>

#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/printable.h"

namespace dunlin::bootstrap {
namespace {

using namespace std::chrono_literals;

TEST(PacedLog, TheFirstLineComesAtOnceAndTheNextCountsWhatWasLeftOut) {
  PacedLog log("connections refused");
  TimePoint now{};
  EXPECT_EQ(log.take(now), std::nullopt);
  EXPECT_EQ(log.next(), TimePoint::max());
  log.note("first");
  EXPECT_LE(log.next(), now);
  EXPECT_EQ(log.take(now), "first");
  for (int i = 0; i < 12; ++i) log.note("some");
  log.note("newest");
  EXPECT_EQ(log.take(now + kLogInterval - 1ns), std::nullopt);
  EXPECT_EQ(log.next(), now + kLogInterval);
  now += kLogInterval;
  EXPECT_EQ(log.take(now), "newest (12 more connections refused since the last such line)");
  EXPECT_EQ(log.take(now + 10s), std::nullopt);
  log.note("later");
  EXPECT_EQ(log.take(now + 10s), "later");
}

TEST(Printable, EscapesWhatATerminalWouldTakeForACommand) {
  EXPECT_EQ(printable("rank 3, 'key' ~"), "rank 3, 'key' ~");
  EXPECT_EQ(printable("\x1b[2J\r\n\t\x7f\xc2\x9b"), "\\x1b[2J\\x0d\\x0a\\x09\\x7f\\xc2\\x9b");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
}

}  // namespace
}  // namespace dunlin::bootstrap
