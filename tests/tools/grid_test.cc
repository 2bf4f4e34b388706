#include "tools/lib/grid.h"

#include <gtest/gtest.h>

namespace dunlin::tools {
namespace {

TEST(Grid, HasRowsAndColumns) {
  EXPECT_EQ(parse_grid("4x8").value().rows, 4);
  EXPECT_EQ(parse_grid("4x8").value().columns, 8);
  for (const char* const text : {"", "4", "4x", "x4", "0x4", "4x4x4", "-1x4"}) {
    const Status status = parse_grid(text).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_EQ(status.message(),
              "'" + std::string(text) + "' is not a grid of ROWSxCOLUMNS, such as 4x8");
  }
}

}  // namespace
}  // namespace dunlin::tools
