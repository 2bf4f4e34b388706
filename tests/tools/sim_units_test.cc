// Times and rates as dunlin-sim reads and writes them.
#include <gtest/gtest.h>

#include "tools/dunlin-sim/network/units.h"

namespace dunlin::simulate {
namespace {

using namespace std::chrono_literals;

TEST(SimUnits, TimesHaveAUnit) {
  EXPECT_EQ(parse_duration("300ns").value(), 300ns);
  EXPECT_EQ(parse_duration("5us").value(), 5us);
  EXPECT_EQ(parse_duration("1.5ms").value(), 1500us);
  EXPECT_EQ(parse_duration("2s").value(), 2s);
  EXPECT_EQ(parse_duration("0").value(), 0ns);
  EXPECT_EQ(parse_duration("3600s").value(), 1h);
  for (const char* wrong : {"", "5", "us", "-5us", "5 us", "5us ", "5m", "nan", "infs", "1e300s",
                            "3601s", "5uss", "+5us"}) {
    EXPECT_EQ(parse_duration(wrong).status().code(), Code::kInvalidArgument) << wrong;
  }
}

TEST(SimUnits, TroublesNameTheirRank) {
  EXPECT_EQ(parse_straggler("3:5").value().rank, Rank(3));
  EXPECT_DOUBLE_EQ(parse_straggler("0:1.5").value().factor, 1.5);
  for (const char* wrong : {"", "3", "3:", ":5", "-1:5", "3:0", "3:-2", "3:5x", "3:5:1"})
    EXPECT_EQ(parse_straggler(wrong).status().code(), Code::kInvalidArgument) << wrong;
  EXPECT_EQ(parse_kill("7@2ms").value().rank, Rank(7));
  EXPECT_EQ(parse_kill("7@2ms").value().at, 2ms);
  for (const char* wrong : {"", "7", "7@", "@2ms", "-7@2ms", "7@2", "7:2ms"})
    EXPECT_EQ(parse_kill(wrong).status().code(), Code::kInvalidArgument) << wrong;
}

TEST(SimUnits, JitterHasAShape) {
  using Kind = transport::sim::Jitter::Kind;
  EXPECT_EQ(parse_jitter("2us").value().kind, Kind::kUniform);
  EXPECT_EQ(parse_jitter("uniform:2us").value().kind, Kind::kUniform);
  EXPECT_EQ(parse_jitter("exponential:2us").value().kind, Kind::kExponential);
  EXPECT_EQ(parse_jitter("exponential:2us").value().scale, 2us);
  for (const char* wrong : {"", "uniform:", "normal:2us", "2us:uniform"})
    EXPECT_EQ(parse_jitter(wrong).status().code(), Code::kInvalidArgument) << wrong;
}

TEST(SimUnits, TimesAreToldInTheUnitThatSuits) {
  EXPECT_EQ(format_duration(0ns), "0 ns");
  EXPECT_EQ(format_duration(999ns), "999 ns");
  EXPECT_EQ(format_duration(2500ns), "2.50 us");
  EXPECT_EQ(format_duration(1204us), "1.204 ms");
  EXPECT_EQ(format_duration(90s), "90.000 s");
}

}  // namespace
}  // namespace dunlin::simulate
