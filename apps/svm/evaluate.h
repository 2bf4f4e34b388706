// The objective and the error of a model on a data set. Stateless; any thread, as long as nobody
// writes to the model meanwhile.
#pragma once

#include <cstdint>
#include <span>

#include "apps/svm/dataset.h"
#include "apps/svm/loss.h"

namespace dunlin::svm {

// w.x for a row's indices and values; in double, so that an objective of 10^5 rows keeps its
// digits.
double dot(const float* weights, const Row& row);

// Sums rather than means, so that the evaluations of shards can be added up.
struct Evaluation {
  std::uint64_t rows = 0;
  std::uint64_t wrong = 0;
  double loss_sum = 0;
  double regulariser = 0;  // lambda/2 |w|^2; the bias is not regularised

  double mean_loss() const { return loss_sum / static_cast<double>(rows); }
  double objective() const { return regulariser + mean_loss(); }
  double error_rate() const { return static_cast<double>(wrong) / static_cast<double>(rows); }
};

// `model` holds data.features weights and then the bias; the data set has at least one row. A row
// on the plane itself counts as wrong. Only the first `first_rows` rows, where there are more.
Evaluation evaluate(std::span<const float> model, const Dataset& data, Loss loss, double lambda,
                    std::size_t first_rows = SIZE_MAX);

// lambda/2 |w|^2, in double.
double regulariser(std::span<const float> weights, double lambda);

}  // namespace dunlin::svm
