// The data sets of a run. Every rank has a shard of the training set; the reporting rank also has
// the whole set and the test set.
#pragma once

#include <optional>

#include "apps/svm/dataset.h"
#include "apps/svm/program/options.h"

namespace dunlin::svm {

// The rows of the shard, as options.shard_skew says.
Result<Dataset> load_shard(const Options& options, Shard shard);
// The rows of the shard where all rows are dealt in turns.
Result<Dataset> load_dealt_rows(const Options& options, Shard shard);

// What the reporting rank evaluates on.
struct EvaluationData {
  Dataset train;
  std::optional<Dataset> test;
};
Result<EvaluationData> load_evaluation_data(const Options& options);

}  // namespace dunlin::svm
