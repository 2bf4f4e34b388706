#include "apps/digest.h"

#include <gtest/gtest.h>

#include "runtime/bytes.h"

namespace dunlin {
namespace {

TEST(Digest, SumsCarryAndDoNotDependOnTheOrder) {
  Digest low{};
  Digest one{};
  low[0] = low[1] = std::byte{0xFF};
  one[0] = std::byte{1};
  Digest carried{};
  carried[2] = std::byte{1};
  EXPECT_EQ(sum_of(low, one), carried);
  Digest most;
  most.fill(std::byte{0xFF});
  EXPECT_EQ(sum_of(most, one), Digest{});  // modulo 2^256
  const Digest a = digest_of({as_bytes("a")});
  const Digest b = digest_of({as_bytes("b")});
  EXPECT_EQ(sum_of(a, b), sum_of(b, a));
  EXPECT_NE(sum_of(a, a), sum_of(a, b));
}

}  // namespace
}  // namespace dunlin
