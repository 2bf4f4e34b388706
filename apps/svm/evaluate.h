// The objective and the error of a model on a data set. Stateless; any thread, as long as no thread
// writes to the model meanwhile.
#pragma once

#include <cstdint>
#include <span>

#include "apps/svm/dataset.h"
#include "apps/svm/loss.h"

namespace dunlin::svm {

// The product w.x for the indices and values of a row. The sum is in double, so that an objective
// over 10^5 rows keeps its digits.
double dot(const float* weights, const Row& row);

// Holds sums rather than means, so that the evaluations of shards can be added up.
struct Evaluation {
  std::uint64_t rows = 0;
  std::uint64_t wrong = 0;
  double loss_sum = 0;
  double regularizer = 0;  // lambda/2 |w|^2; the bias is not regularized

  double mean_loss() const { return loss_sum / static_cast<double>(rows); }
  double objective() const { return regularizer + mean_loss(); }
  double error_rate() const { return static_cast<double>(wrong) / static_cast<double>(rows); }
};

// `model` holds data.features weights and then the bias; the data set has at least one row. A row
// on the plane itself counts as wrong. `first_rows` limits the evaluation to the first rows.
Evaluation evaluate(std::span<const float> model, const Dataset& data, Loss loss, double lambda,
                    std::size_t first_rows = SIZE_MAX);

// lambda/2 |w|^2, in double.
double regularizer(std::span<const float> weights, double lambda);

}  // namespace dunlin::svm
