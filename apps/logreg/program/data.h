// The data sets of a run.
#pragma once

#include <optional>

#include "apps/logreg/program/options.h"
#include "apps/svm/dataset.h"

namespace dunlin::logreg {

// The training rows of a rank; all rows with the default shard.
Result<svm::Dataset> load_training(const Options& options, svm::Shard shard);

// Nothing if there is no test set. `train` is any shard: the test set gets its features and labels.
Result<std::optional<svm::Dataset>> load_test(const Options& options, const svm::Dataset& train);

}  // namespace dunlin::logreg
