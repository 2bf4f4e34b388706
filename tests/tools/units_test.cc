#include "tools/lib/units.h"

#include <gtest/gtest.h>

namespace dunlin::tools {
namespace {

TEST(Units, TimesHaveTheirUnit) {
  EXPECT_DOUBLE_EQ(parse_seconds("2us").value(), 2e-6);
  EXPECT_DOUBLE_EQ(parse_seconds("0.1ns").value(), 1e-10);
  EXPECT_EQ(parse_seconds("0").value(), 0);
  for (const char* const text : {"", "2", "us", "-1us", "2 us", "infs", "nan", "2usx"})
    EXPECT_EQ(parse_seconds(text).status().code(), Code::kInvalidArgument) << text;
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
  EXPECT_EQ(parse_size("64KiB").value(), 65536u);
  EXPECT_EQ(parse_size("1M").value(), 1048576u);
  EXPECT_EQ(parse_size("25.6MB").value(), 25'600'000u);
  for (const char* const text : {"", "1KB2", "x", "1e30", "-5"})
    EXPECT_EQ(parse_size(text).status().code(), Code::kInvalidArgument) << text;
}

TEST(Units, GridsHaveRowsAndColumns) {
  EXPECT_EQ(parse_grid("4x8").value().rows, 4);
  EXPECT_EQ(parse_grid("4x8").value().columns, 8);
  for (const char* const text : {"", "4", "4x", "x4", "0x4", "4x4x4", "-1x4"}) {
    const Status status = parse_grid(text).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_EQ(status.message(),
              "'" + std::string(text) + "' is not a grid of ROWSxCOLUMNS, such as 4x8");
  }
}

TEST(Units, AreToldAsSuits) {
  EXPECT_EQ(format_seconds(1.204e-3), "1.204 ms");
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(12.5e9), "12.5 GB");
}

}  // namespace
}  // namespace dunlin::tools
