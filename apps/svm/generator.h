// Generates sparse data with a planted model, in the shape of a text collection such as RCV1.
// Features occur with power-law frequencies. A repeated feature weighs more and a frequent feature
// less (tf-idf), and rows have length 1. The label says on which side of a planted plane the row
// lies, except for a share of flipped labels.
//
// Row i depends on the options and on i alone. Therefore the shards of any number of ranks are the
// rows of the same whole, and rows beyond the training set are a test set. Stateless; any thread.
#pragma once

#include <cstdint>

#include "apps/svm/dataset.h"
#include "runtime/status.h"

namespace dunlin::svm {

// The defaults give a set of RCV1's size.
struct GeneratorOptions {
  std::uint64_t rows = 20'000;
  std::uint32_t features = 47'236;
  std::uint32_t nonzeros_per_row = 75;  // on average
  double flipped = 0.01;                // share of labels that contradict the plane
  std::uint64_t seed = 1;
  std::uint64_t first_row = 0;  // `rows` rows from here on
};

// Row k of the whole result is row first_row + k of the endless sequence; the shard counts from
// first_row. kInvalidArgument for options that describe no data set.
Result<Dataset> generate(const GeneratorOptions& options, Shard shard = {});

}  // namespace dunlin::svm
