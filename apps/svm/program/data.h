// The data sets of a run. Every rank has a shard of the training set; the reporting rank also has
// the whole set and the test set.
#pragma once

#include <optional>

#include "apps/digest.h"
#include "apps/svm/dataset.h"
#include "apps/svm/program/options.h"

namespace dunlin::svm {

Result<Dataset> load_shard(const Options& options, Shard shard);
// Tells training sets apart: the digest of the whole file's text, or of the generator's options.
// Reads the file.
Result<Digest> digest_of_set(const Options& options);

// What the reporting rank evaluates on.
struct EvaluationData {
  Dataset train;
  std::optional<Dataset> test;
};
Result<EvaluationData> load_evaluation_data(const Options& options);

}  // namespace dunlin::svm
