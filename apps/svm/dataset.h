// A labeled sparse data set, or one rank's shard of it, in compressed rows (CSR). The reader or the
// generator fills it once; afterwards any thread may read it.
//
// Row i of the whole set belongs to rank i % ranks, unless shards are skewed (shard_skew.h). Files
// are often sorted by class or by time; with this rule every rank has the same mixture, and the
// sizes of the shards differ by at most one row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "apps/digest.h"
#include "apps/shard.h"

namespace dunlin::svm {

using dunlin::Shard;

// Borrowed from the Dataset.
struct Row {
  std::span<const std::uint32_t> indices;  // 0-based, ascending
  std::span<const float> values;           // one for each index
  float label;                             // -1 or +1
};

struct Dataset {
  std::vector<std::uint64_t> row_begin{0};  // rows + 1 offsets into indices and values
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  std::vector<float> labels;
  std::vector<std::uint64_t> numbers;  // of the rows in the whole set, from 0; ascending
  std::uint32_t features = 0;          // every index is below it; the same on all ranks
  std::uint64_t total_rows = 0;        // of the whole set, of which this is a shard
  // Labels of the file above this value are +1. A test file has to be read with the threshold of
  // its training file.
  float label_threshold = 0;
  std::uint64_t dropped_values = 0;  // left out since their index was beyond `features`
  // Of the whole set, to tell sets apart: of the file's text, if LibsvmOptions::has_digest, or of
  // the generator's options.
  Digest whole{};

  std::size_t rows() const { return labels.size(); }
  Row row(std::size_t i) const {
    const std::uint64_t begin = row_begin[i];
    const std::size_t count = row_begin[i + 1] - begin;
    return {{indices.data() + begin, count}, {values.data() + begin, count}, labels[i]};
  }
};

}  // namespace dunlin::svm
