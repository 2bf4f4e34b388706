// The data sets of a run.
#pragma once

#include <optional>

#include "apps/logreg/program/options.h"
#include "apps/svm/dataset.h"

namespace dunlin::logreg {

// The training rows of a rank; of all of them where the shard is the default.
Result<svm::Dataset> load_training(const Options& options, svm::Shard shard);

// Nothing where there is no test set. `train`: any shard; its features and labels are the test's.
Result<std::optional<svm::Dataset>> load_test(const Options& options, const svm::Dataset& train);

}  // namespace dunlin::logreg
