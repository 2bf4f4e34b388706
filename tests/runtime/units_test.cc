#include "runtime/units.h"

#include <gtest/gtest.h>

namespace dunlin {
namespace {

using namespace std::chrono_literals;

TEST(Units, TimesHaveTheirUnit) {
  EXPECT_DOUBLE_EQ(parse_seconds("2us").value(), 2e-6);
  EXPECT_DOUBLE_EQ(parse_seconds("0.1ns").value(), 1e-10);
  EXPECT_DOUBLE_EQ(parse_seconds("2min").value(), 120);
  EXPECT_EQ(parse_seconds("0").value(), 0);
  for (const char* const text : {"", "2", "us", "-1us", "2 us", "infs", "nan", "2usx", "5m"}) {
    EXPECT_EQ(parse_seconds(text).status().code(), Code::kInvalidArgument) << text;
    EXPECT_EQ(parse_duration(text).status().code(), Code::kInvalidArgument) << text;
  }
}

TEST(Units, DurationsHaveLimits) {
  EXPECT_EQ(parse_duration("1.5ms").value(), 1500us);
  EXPECT_EQ(parse_duration("24h").value(), 24h);
  EXPECT_EQ(parse_duration("0").value(), 0ns);
  EXPECT_EQ(parse_duration("1e300s").status().code(), Code::kInvalidArgument);
  const TimeLimits limits{.low = 1ms, .high = 1h};
  EXPECT_EQ(parse_duration("1ms", limits).value(), 1ms);
  EXPECT_EQ(parse_duration("3600s", limits).value(), 1h);
  for (const char* const text : {"0", "999us", "3601s"}) {
    EXPECT_EQ(parse_duration(text, limits).status().message(),
              "'" + std::string(text) +
                  "' is not a time from 1ms to 1h, such as 8s or 500ms (a number needs a unit)");
  }
}

TEST(Units, ABareNumberCanHaveAUnitOfItsOwn) {
  const TimeLimits limits{.high = 1s, .bare_unit = "ms"};
  EXPECT_EQ(parse_duration("2.5", limits).value(), 2500us);
  EXPECT_EQ(parse_duration("2.5us", limits).value(), 2500ns);
  EXPECT_EQ(parse_duration("1001", limits).status().message(),
            "'1001' is not a time from 0 to 1s, such as 8s or 500ms (a number without a unit is in "
            "ms)");
}

TEST(Units, BandwidthsAreOfBitsOrBytes) {
  EXPECT_DOUBLE_EQ(parse_bandwidth("100Gb").value(), 12.5e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("12.5GB/s").value(), 12.5e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("8b").value(), 1);
  EXPECT_DOUBLE_EQ(parse_bandwidth("3kB").value(), 3000);
  EXPECT_DOUBLE_EQ(parse_bandwidth("800MB/s").value(), 800e6);
  EXPECT_DOUBLE_EQ(parse_bandwidth("1.6Tb/s").value(), 200e9);
  EXPECT_EQ(parse_bandwidth("unlimited").value(), 0);
  for (const char* const text :
       {"", "10", "0Gb", "-1GB", "100G", "100Gbit", "10Gbs", "Gb", "100 GB", "nanGB"}) {
    EXPECT_EQ(parse_bandwidth(text).status().code(), Code::kInvalidArgument) << text;
  }
}

TEST(Units, SizesAreOfPowersOf1024UnlessTheySayOtherwise) {
  EXPECT_EQ(parse_size("4096").value(), 4096u);
  EXPECT_EQ(parse_size("64KiB").value(), 65536u);
  EXPECT_EQ(parse_size("16K").value(), 16384u);
  EXPECT_EQ(parse_size("16k").value(), 16384u);
  EXPECT_EQ(parse_size("1M").value(), 1048576u);
  EXPECT_EQ(parse_size("25.6MB").value(), 25'600'000u);
  EXPECT_EQ(parse_size("2KB").value(), 2000u);
  for (const char* const text : {"", "1KB2", "x", "1e30", "-5", "1 K"})
    EXPECT_EQ(parse_size(text).status().code(), Code::kInvalidArgument) << text;
}

TEST(Units, SizesHaveLimits) {
  const SizeLimits limits{.low = 8, .high = std::size_t{1} << 20};
  EXPECT_EQ(parse_size("8", limits).value(), 8u);
  EXPECT_EQ(parse_size("1M", limits).value(), 1048576u);
  for (const char* const text : {"7", "1025K"}) {
    EXPECT_EQ(parse_size(text, limits).status().message(),
              "'" + std::string(text) +
                  "' is not a size from 8 to 1MiB, such as 4096, 64K or "
                  "25.6MB");
  }
}

std::string rewritten(const Rewriter& rewriter, std::string text) {
  const std::string problem = rewriter(text);
  return problem.empty() ? text : problem;
}

TEST(Units, OptionsBecomePlainNumbers) {
  EXPECT_EQ(rewritten(time_option({.bare_unit = "s"}), "500ms"), "0.5");
  EXPECT_EQ(rewritten(time_option({.bare_unit = "s"}), "2"), "2");
  EXPECT_EQ(rewritten(time_option({.bare_unit = "us"}), "1s"), "1000000");
  EXPECT_EQ(rewritten(time_option({}), "3ms"), "0.003");
  EXPECT_EQ(rewritten(time_option({}), "3").substr(0, 17), "'3' is not a time");
  EXPECT_EQ(rewritten(size_option(), "64K"), "65536");
  EXPECT_EQ(rewritten(size_option({.high = 10}), "11").substr(0, 18), "'11' is not a size");
}

TEST(Units, ExactTextCanBeReadAgain) {
  for (const auto& [time, text] : {std::pair<Duration, const char*>{0s, "0"},
                                   {30s, "30s"},
                                   {90s, "90s"},
                                   {24h, "24h"},
                                   {1234ms, "1234ms"},
                                   {1500us, "1500us"},
                                   {7ns, "7ns"}}) {
    EXPECT_EQ(exact_time(time), text);
    EXPECT_EQ(parse_duration(text).value(), time);
  }
  for (const auto& [bytes, text] : {std::pair<std::size_t, const char*>{0, "0"},
                                    {1000, "1000"},
                                    {16384, "16KiB"},
                                    {1025u << 10, "1025KiB"},
                                    {1u << 30, "1GiB"}}) {
    EXPECT_EQ(exact_size(bytes), text);
    EXPECT_EQ(parse_size(text).value(), bytes);
  }
}

TEST(Units, RoundedTextHasTheUnitThatSuits) {
  EXPECT_EQ(format_seconds(1.204e-3), "1.204 ms");
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(12.5e9), "12.5 GB");
}

}  // namespace
}  // namespace dunlin
