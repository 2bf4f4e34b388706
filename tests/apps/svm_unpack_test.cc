// Unpacking is bounded: a small file that claims to be a huge one ends in an error.
#include "apps/svm/unpack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#if DUNLIN_HAVE_LZMA
#include <lzma.h>
#endif
#if DUNLIN_HAVE_ZLIB
#include "tests/support/gzip.h"
#endif

#include <string>

#include "apps/svm/gzip.h"
#include "apps/svm/xz.h"

namespace dunlin::svm {
namespace {

using ::testing::HasSubstr;

TEST(Unpack, FilesMayHoldSoMuch) {
  EXPECT_EQ(most_unpacked(0), kAlwaysUnpacked);
  EXPECT_EQ(most_unpacked(kAlwaysUnpacked / kMostTimes), kAlwaysUnpacked);
  EXPECT_EQ(most_unpacked(std::size_t{1} << 30), kMostTimes << 30);
}

// A decompressor that turns one byte into `total` bytes, as many at a time as fit.
struct Maker {
  std::size_t total = 0;
  std::size_t made = 0;
  std::size_t largest_room = 0;

  Result<std::vector<char>> run() {
    return unpack("x", 4, [&](std::string_view input, std::span<char> room) -> Result<UnpackStep> {
      largest_room = std::max(largest_room, room.size());
      UnpackStep step;
      step.taken = input.size();
      step.made = std::min(room.size(), total - made);
      made += step.made;
      step.is_over = made == total;
      return step;
    });
  }
};

TEST(Unpack, GrowsUpToTheBoundAndNoFurther) {
  Maker most;
  most.total = kAlwaysUnpacked;
  ASSERT_EQ(most.run().value().size(), kAlwaysUnpacked);
  Maker more;
  more.total = kAlwaysUnpacked + 1;
  EXPECT_EQ(more.run().status().code(), Code::kInvalidArgument);
  Maker huge;
  huge.total = std::size_t{1} << 50;
  EXPECT_EQ(huge.run().status().code(), Code::kInvalidArgument);
  EXPECT_EQ(huge.made, kAlwaysUnpacked + 1);
  EXPECT_LE(huge.largest_room, kAlwaysUnpacked);
}

TEST(Unpack, PassesOnWhatADecompressorFailsWith) {
  const auto failed = unpack("x", 4, [](std::string_view, std::span<char>) -> Result<UnpackStep> {
    return Status(Code::kCorrupted, "no");
  });
  EXPECT_EQ(failed.status().code(), Code::kCorrupted);
}

#if DUNLIN_HAVE_ZLIB || DUNLIN_HAVE_LZMA
void expect_refusal(const Result<std::vector<char>>& unpacked, std::size_t packed_bytes) {
  ASSERT_LT(packed_bytes, kAlwaysUnpacked / kMostTimes);
  EXPECT_EQ(unpacked.status().code(), Code::kInvalidArgument);
  const std::string message(unpacked.status().message());
  EXPECT_THAT(message, HasSubstr(std::to_string(packed_bytes) + " bytes unpack to more than"));
  EXPECT_THAT(message, HasSubstr("Unpack it beforehand"));
}
#endif

#if DUNLIN_HAVE_ZLIB
TEST(Unpack, AGzipBombIsRefused) {
  // Half of the limit is allowed once, but not in two members.
  const std::string half = testing::gzip_of(std::string(kAlwaysUnpacked / 2 + 1, '\0'));
  EXPECT_EQ(unpack_gzip(half).value().size(), kAlwaysUnpacked / 2 + 1);
  expect_refusal(unpack_gzip(half + half), 2 * half.size());
}
#endif

#if DUNLIN_HAVE_LZMA
std::string xz_of_zeros(std::size_t bytes) {
  const std::string zeros(bytes, '\0');
  std::string packed(lzma_stream_buffer_bound(bytes), '\0');
  std::size_t size = 0;
  EXPECT_EQ(lzma_easy_buffer_encode(
                0, LZMA_CHECK_CRC32, nullptr, reinterpret_cast<const std::uint8_t*>(zeros.data()),
                bytes, reinterpret_cast<std::uint8_t*>(packed.data()), &size, packed.size()),
            LZMA_OK);
  packed.resize(size);
  return packed;
}

TEST(Unpack, AnXzBombIsRefused) {
  const std::string half = xz_of_zeros(kAlwaysUnpacked / 2 + 1);
  EXPECT_EQ(unpack_xz(half).value().size(), kAlwaysUnpacked / 2 + 1);
  expect_refusal(unpack_xz(half + half), 2 * half.size());
}
#endif

}  // namespace
}  // namespace dunlin::svm
