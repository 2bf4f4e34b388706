// The data sets of a run: every rank's shard of the training set, and for the rank that reports
// also the whole of it and the test set.
#pragma once

#include <optional>

#include "apps/svm/dataset.h"
#include "apps/svm/program/options.h"

namespace dunlin::svm {

Result<Dataset> load_shard(const Options& options, Shard shard);

// What the reporting rank evaluates on.
struct EvaluationData {
  Dataset train;
  std::optional<Dataset> test;
};
Result<EvaluationData> load_evaluation_data(const Options& options);

}  // namespace dunlin::svm
