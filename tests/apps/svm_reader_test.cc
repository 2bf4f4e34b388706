#include "apps/svm/libsvm_reader.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "apps/svm/generator.h"
#include "tests/apps/svm_text.h"
#include "tests/support/temp_folder.h"

namespace dunlin::svm {
namespace {

Dataset parsed(std::string_view text, const LibsvmOptions& options = {}) {
  auto data = parse_libsvm("f", text, options);
  EXPECT_TRUE(data.is_ok()) << data.status().to_string();
  return data ? std::move(data).value() : Dataset{};
}

std::string error_of(std::string_view text, const LibsvmOptions& options = {}) {
  const auto data = parse_libsvm("f", text, options);
  EXPECT_EQ(data.status().code(), Code::kInvalidArgument);
  return std::string(data.status().message());
}

// Writes a file with these bytes into a folder.
std::string written(const testing::TempFolder& folder, const std::string& name,
                    const std::string& bytes) {
  std::ofstream(folder.file(name), std::ios::binary) << bytes;
  return folder.file(name);
}

TEST(LibsvmReader, ReadsRowsLabelsAndZeroBasedIndices) {
  const Dataset data = parsed("+1 1:0.5 3:-2e-1\n-1\n1 2:7");
  EXPECT_EQ(data.features, 3U);
  EXPECT_EQ(data.total_rows, 3U);
  EXPECT_EQ(data.labels, (std::vector<float>{1, -1, 1}));
  EXPECT_EQ(data.row_begin, (std::vector<std::uint64_t>{0, 2, 2, 3}));
  EXPECT_EQ(data.indices, (std::vector<std::uint32_t>{0, 2, 1}));
  EXPECT_EQ(data.values, (std::vector<float>{0.5F, -0.2F, 7}));
}

TEST(LibsvmReader, AcceptsBlankLinesCommentsTabsAndCarriageReturns) {
  const Dataset data = parsed(
      "# made by hand\r\n"
      "\r\n"
      "  +1\t1:1   2:+2 # first\r\n"
      "\n"
      "   \t\n"
      "-1 2:.5#second\n"
      "# the end");
  EXPECT_EQ(data.labels, (std::vector<float>{1, -1}));
  EXPECT_EQ(data.values, (std::vector<float>{1, 2, 0.5F}));
}

TEST(LibsvmReader, NumbersBelowTheSmallestFloatAreZero) {
  EXPECT_EQ(parsed("1 1:1e-60 2:-1e-400").values, (std::vector<float>{0, 0}));
}

struct Malformed {
  const char* text;
  const char* error;
};

TEST(LibsvmReader, MalformedLinesAreReportedWithLineAndColumn) {
  const Malformed cases[] = {
      {"x 1:1\n", "f:1:1: label 'x' is not a number"},
      {"+1 1:1\n  +-1 1:1\n", "f:2:3: label '+-1' is not a number"},
      {"- 1:1\n", "f:1:1: label '-' is not a number"},
      {"nan 1:1\n", "f:1:1: label 'nan' is not finite"},
      {"1e99 1:1\n", "f:1:1: label '1e99' is too large for a float"},
      {"1:1 2:2\n", "f:1:2: unexpected ':1' after the label"},
      {"1,1 2:2\n", "f:1:2: unexpected ',1' after the label"},
      {"+1 1\n", "f:1:5: expected ':' after index 1"},
      {"+1 1 :2\n", "f:1:5: expected ':' after index 1"},
      {"+1 a:1\n", "f:1:4: index 'a:1' is not a whole number"},
      {"+1 -3:1\n", "f:1:4: index '-3:1' is not a whole number"},
      {"+1 :1\n", "f:1:4: index ':1' is not a whole number"},
      {"+1 1.5:1\n", "f:1:5: expected ':' after index 1"},
      {"+1 0:1\n", "f:1:4: index 0: indices count from 1"},
      {"+1 2:1 2:1\n", "f:1:8: index 2 after 2: indices must ascend"},
      {"+1 9:1 2:1\n", "f:1:8: index 2 after 9: indices must ascend"},
      {"+1 4294967296:1\n", "f:1:4: index '4294967296' does not fit into 32 bits"},
      {"+1 1:\n", "f:1:6: value '' is not a number"},
      {"+1 1: 2\n", "f:1:6: value '' is not a number"},
      {"+1 1:one\n", "f:1:6: value 'one' is not a number"},
      {"+1 1:.\n", "f:1:6: value '.' is not a number"},
      {"+1 1:NaN\n", "f:1:6: value 'NaN' is not finite"},
      {"+1 1:-inf\n", "f:1:6: value '-inf' is not finite"},
      {"+1 1:1e39\n", "f:1:6: value '1e39' is too large for a float"},
      {"+1 1:-1e999\n", "f:1:6: value '-1e999' is too large for a float"},
      {"+1 1:0x10\n", "f:1:7: unexpected 'x10' after the value"},
      {"+1 1:1:2\n", "f:1:7: unexpected ':2' after the value"},
      {"+1 1:1 rubbish\n", "f:1:8: index 'rubbish' is not a whole number"},
      {"+1 1:1\x07\n", "f:1:7: unexpected '\\x07' after the value"},
      {"\n# c\r\n+1 1:1\r\n\r\n+1 1:1 1\r\n", "f:5:9: expected ':' after index 1"},
      {"+1 1:abcdefghijklmnopqrstuvwxyz",
       "f:1:6: value 'abcdefghijklmnopqrstuvwx...' is not a number"},
  };
  for (const Malformed& malformed : cases) {
    EXPECT_EQ(error_of(malformed.text), malformed.error) << malformed.text;
  }
}

TEST(LibsvmReader, FilesWithoutRowsAreErrors) {
  EXPECT_EQ(error_of(""), "f: holds no rows");
  EXPECT_EQ(error_of("\n# nothing\n"), "f: holds no rows");
}

TEST(LibsvmReader, KnowsThreeCodingsOfTwoClasses) {
  EXPECT_EQ(parsed("0\n1\n0").labels, (std::vector<float>{-1, 1, -1}));
  EXPECT_EQ(parsed("2\n1\n").labels, (std::vector<float>{1, -1}));
  EXPECT_EQ(parsed("-1.0\n+1e0").labels, (std::vector<float>{-1, 1}));
  EXPECT_EQ(parsed("1\n1").labels, (std::vector<float>{1, 1}));
  EXPECT_EQ(parsed("0\n").labels, (std::vector<float>{-1}));
}

TEST(LibsvmReader, OtherLabelsNeedAThreshold) {
  const std::string rule =
      ": the labels must be -1 and +1, 0 and 1 or 1 and 2 (or set a threshold)";
  EXPECT_EQ(error_of("3 1:1\n"), "f:1:1: label 3" + rule);
  EXPECT_EQ(error_of("1\n2\n\n 0\n"), "f:4:2: label 0 after 1" + rule);
  EXPECT_EQ(error_of("-1\n2\n"), "f:2:1: label 2 after -1" + rule);
  LibsvmOptions options;
  options.label_threshold = 4.5F;
  EXPECT_EQ(parsed("3\n5\n4\n9\n", options).labels, (std::vector<float>{-1, 1, -1, 1}));
  // A test file with one class is read with the coding of its training file.
  options.label_threshold = parsed("1\n2\n").label_threshold;
  EXPECT_EQ(parsed("1\n1\n", options).labels, (std::vector<float>{-1, -1}));
}

TEST(LibsvmReader, ValuesBeyondTheFeaturesAreErrorsOrDropped) {
  LibsvmOptions options;
  options.features = 3;
  EXPECT_EQ(error_of("+1 1:1 3:1\n-1 2:1 4:1\n", options),
            "f:2:8: index 4 is beyond the 3 features");
  options.drop_beyond = true;
  const Dataset data = parsed("+1 1:1 3:1\n-1 2:1 4:1 5:1\n", options);
  EXPECT_EQ(data.features, 3U);
  EXPECT_EQ(data.indices, (std::vector<std::uint32_t>{0, 2, 1}));
  EXPECT_EQ(data.dropped_values, 2U);
  options.features = 100;
  EXPECT_EQ(parsed("+1 1:1\n", options).features, 100U);
}

// With chunks of every small size, every place becomes a boundary.
TEST(LibsvmReader, ThreadsAndChunksChangeNothing) {
  const std::string text =
      "# head\r\n" +
      text_of(generate({.rows = 40, .features = 50, .nonzeros_per_row = 4}).value()) + "\n-1 7:1";
  LibsvmOptions serial;
  serial.threads = 1;
  serial.chunk_bytes = text.size();
  const Dataset expected = parsed(text, serial);
  for (std::size_t chunk_bytes : {1, 2, 3, 7, 16, 64, 100, 1000}) {
    LibsvmOptions options;
    options.threads = 3;
    options.chunk_bytes = chunk_bytes;
    expect_same(parsed(text, options), expected);
    EXPECT_EQ(error_of(text + "\n\nbad\nworse", options),
              error_of(text + "\n\nbad\nworse", serial));
  }
}

TEST(LibsvmReader, ShardsPartitionTheWhole) {
  const Dataset whole = generate({.rows = 101, .features = 60, .nonzeros_per_row = 5}).value();
  const std::string text = text_of(whole);
  for (const std::uint32_t ranks : {1U, 2U, 3U, 8U, 200U}) {
    std::vector<Dataset> shards;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      LibsvmOptions options;
      options.shard = {rank, ranks};
      options.chunk_bytes = 100;
      shards.push_back(parsed(text, options));
      EXPECT_EQ(shards.back().total_rows, whole.rows());
      EXPECT_EQ(shards.back().features, parsed(text).features);
    }
    expect_dealt_from(whole, shards);
  }
}

TEST(LibsvmReader, ReadsMappedFilesAndNamesThemInErrors) {
  const testing::TempFolder folder;
  const std::string good = written(folder, "data_good.txt", "+1 1:1\n-1 2:2");
  EXPECT_EQ(read_libsvm(good).value().rows(), 2U);
  const std::string bad = written(folder, "data_bad.txt", "+1 1:1\n-1 2=2");
  EXPECT_EQ(read_libsvm(bad).status().message(), bad + ":2:5: expected ':' after index 2");
  const std::string empty = written(folder, "data_empty.txt", "");
  EXPECT_EQ(read_libsvm(empty).status().message(), empty + ": holds no rows");
  const std::string bzip2 = written(folder, "data.bz2", "BZh9....");
  EXPECT_EQ(read_libsvm(bzip2).status().message(), bzip2 + ": is packed with bzip2: unpack it");
  EXPECT_EQ(read_libsvm(bzip2 + ".absent").status().code(), Code::kNotFound);
  EXPECT_EQ(read_libsvm(folder.path().string()).status().code(), Code::kInvalidArgument);
}

// "+1 1:0.5 3:2\n-1 2:1\n", packed.
constexpr unsigned char kPacked[] = {
    0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x01, 0x69, 0x22, 0xde, 0x36, 0x02, 0x00, 0x21,
    0x01, 0x1c, 0x00, 0x00, 0x00, 0x10, 0xcf, 0x58, 0xcc, 0x01, 0x00, 0x13, 0x2b, 0x31, 0x20,
    0x31, 0x3a, 0x30, 0x2e, 0x35, 0x20, 0x33, 0x3a, 0x32, 0x0a, 0x2d, 0x31, 0x20, 0x32, 0x3a,
    0x31, 0x0a, 0x00, 0x2e, 0x65, 0x7c, 0x41, 0x00, 0x01, 0x28, 0x14, 0xfc, 0xcf, 0x01, 0x67,
    0x90, 0x42, 0x99, 0x0d, 0x01, 0x00, 0x00, 0x00, 0x00, 0x01, 0x59, 0x5a};

TEST(LibsvmReader, ReadsXzAndReportsDamage) {
  const testing::TempFolder folder;
  const std::string packed(reinterpret_cast<const char*>(kPacked), sizeof(kPacked));
  const auto data = read_libsvm(written(folder, "data.xz", packed));
  if (data.status().code() == Code::kUnavailable) GTEST_SKIP() << data.status().message();
  ASSERT_TRUE(data.is_ok()) << data.status().to_string();
  EXPECT_EQ(data->values, (std::vector<float>{0.5F, 2, 1}));
  EXPECT_EQ(read_libsvm(written(folder, "data_twice.xz", packed + packed)).value().rows(), 4U);
  for (std::size_t length = 6; length < packed.size(); ++length) {
    const auto cut = read_libsvm(written(folder, "data_cut.xz", packed.substr(0, length)));
    EXPECT_EQ(cut.status().code(), Code::kCorrupted) << length;
  }
  std::string damaged = packed;
  damaged[packed.size() / 2] ^= 1;
  EXPECT_EQ(read_libsvm(written(folder, "data_damaged.xz", damaged)).status().code(),
            Code::kCorrupted);
}

}  // namespace
}  // namespace dunlin::svm
