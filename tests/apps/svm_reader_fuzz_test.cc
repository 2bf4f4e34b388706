// For any bytes, the reader returns the same data set or the same error, however it splits them.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "apps/svm/generator.h"
#include "apps/svm/libsvm_reader.h"
#include "runtime/random.h"
#include "tests/apps/svm_text.h"

namespace dunlin::svm {
namespace {

constexpr int kMutants = 4000;

// Bytes with a meaning in the grammar occur more often than others.
char random_byte(Random& random) {
  constexpr std::string_view kTelling = "0123456789+-.:eE#\n\r \tnaif\0";
  if (random.below(4) == 0) return static_cast<char>(random.below(256));
  return kTelling[random.below(kTelling.size())];
}

std::string mutated(std::string text, Random& random) {
  for (std::uint64_t edits = 1 + random.below(6); edits > 0 && !text.empty(); --edits) {
    const std::size_t at = random.below(text.size());
    switch (random.below(5)) {
      case 0:
        text[at] = random_byte(random);
        break;
      case 1:
        text.insert(at, 1, random_byte(random));
        break;
      case 2:
        text.erase(at, 1 + random.below(8));
        break;
      case 3:
        text.insert(at, text.substr(random.below(text.size()), random.below(40)));
        break;
      case 4:
        text.resize(at);
        break;
    }
  }
  return text;
}

void expect_well_formed(const Dataset& data) {
  ASSERT_EQ(data.row_begin.size(), data.rows() + 1);
  ASSERT_EQ(data.row_begin.back(), data.indices.size());
  ASSERT_EQ(data.values.size(), data.indices.size());
  for (std::size_t i = 0; i < data.rows(); ++i) {
    const Row row = data.row(i);
    ASSERT_TRUE(row.label == 1 || row.label == -1);
    for (std::size_t k = 0; k < row.indices.size(); ++k) {
      ASSERT_LT(row.indices[k], data.features);
      ASSERT_TRUE(k == 0 || row.indices[k - 1] < row.indices[k]);
      ASSERT_TRUE(std::isfinite(row.values[k]));
    }
  }
}

TEST(LibsvmReaderFuzz, MutantsAreReadOrRefusedAlikeHoweverTheyAreSplit) {
  const std::string valid =
      text_of(generate({.rows = 12, .features = 90, .nonzeros_per_row = 6}).value());
  int refused = 0;
  for (std::uint64_t seed = 0; seed < kMutants; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const std::string text = mutated(valid, random);
    LibsvmOptions serial;
    serial.threads = 1;
    LibsvmOptions split;
    split.threads = 2;
    split.chunk_bytes = 1 + random.below(80);
    const auto expected = parse_libsvm("f", text, serial);
    const auto actual = parse_libsvm("f", text, split);
    ASSERT_EQ(actual.status().to_string(), expected.status().to_string());
    if (!expected) {
      ++refused;
      continue;
    }
    expect_same(*actual, *expected);
    expect_well_formed(*expected);
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, kMutants / 10);
  EXPECT_LT(refused, kMutants);
}

}  // namespace
}  // namespace dunlin::svm
