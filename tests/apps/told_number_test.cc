#include "apps/told_number.h"

#include <gtest/gtest.h>

namespace dunlin {
namespace {

TEST(ToldNumber, IsTheWholeMessage) {
  const Bytes message = ByteWriter().number(std::uint64_t{7}).take();
  EXPECT_EQ(told_number<std::uint64_t>(message, "run").value(), 7U);
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{9}}) {
    Bytes wrong = message;
    wrong.resize(size);
    const Status status = told_number<std::uint64_t>(wrong, "run").status();
    EXPECT_EQ(status.code(), Code::kCorrupted);
    EXPECT_EQ(status.message(), fmt::format("a peer's run takes {} bytes instead of 8", size));
  }
}

}  // namespace
}  // namespace dunlin
