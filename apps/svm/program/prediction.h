// Prediction: what dunlin-svm --predict does, in one process and without a job.
#pragma once

#include "apps/svm/program/options.h"
#include "runtime/status.h"

namespace dunlin::svm {

// Predicts the label of each row of --test with the model of --predict, reports the accuracy, and
// writes the labels to --output, one per line, if that is given.
Status predict(const Options& options);

}  // namespace dunlin::svm
