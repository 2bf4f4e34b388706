#include "runtime/trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/temp_folder.h"

namespace dunlin {
namespace {

nlohmann::json read(const std::string& path) {
  return nlohmann::json::parse(std::ifstream(path));
}

TEST(Trace, WritesSpansAndInstantsInMicroseconds) {
  const testing::TempFolder folder;
  ManualClock clock;
  {
    Trace trace(folder.file("trace-%r.json"), Rank(3), clock);
    const TimePoint begin = clock.now();
    clock.advance(std::chrono::microseconds(5));
    trace.span("send", begin, clock.now(), 99);
    trace.instant("ack");
    const TraceSpan scope(&trace, "scope");
    clock.advance(std::chrono::microseconds(2));
  }
  const auto file = read(folder.file("trace-3.json"));
  const auto& events = file["traceEvents"];
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[1]["name"], "send");
  EXPECT_EQ(events[1]["ph"], "X");
  EXPECT_EQ(events[1]["pid"], 3);
  EXPECT_DOUBLE_EQ(events[1]["dur"], 5.0);
  EXPECT_EQ(events[1]["args"]["value"], 99);
  EXPECT_EQ(events[2]["ph"], "i");
  EXPECT_EQ(events[3]["name"], "scope");
  EXPECT_DOUBLE_EQ(events[3]["ts"], 5.0);
}

TEST(Trace, CountsWhatNoLongerFits) {
  const testing::TempFolder folder;
  ManualClock clock;
  Trace trace(folder.file("t.json"), Rank(0), clock, 2);
  for (int i = 0; i < 5; ++i) trace.instant("tick", i);
  ASSERT_TRUE(trace.write().is_ok());
  EXPECT_EQ(read(folder.file("t.json"))["otherData"]["dropped"], 3);
}

TEST(Trace, SaysWhenItsFileCannotBeWritten) {
  ManualClock clock;
  Trace trace("/nonexistent/trace.json", Rank(0), clock);
  EXPECT_EQ(trace.write().code(), Code::kNotFound);
}

TEST(TraceSpan, CostsNothingWithoutATrace) {
  const TraceSpan span(nullptr, "nothing");
}

}  // namespace
}  // namespace dunlin
