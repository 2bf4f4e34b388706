#include "apps/svm/evaluate.h"

#include <algorithm>

namespace dunlin::svm {

// Four sums: the additions of one sum would wait for one another.
double dot(const float* weights, const Row& row) {
  const std::uint32_t* index = row.indices.data();
  const float* value = row.values.data();
  const std::size_t count = row.indices.size();
  double sums[4] = {};
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (std::size_t k = 0; k < 4; ++k) {
      sums[k] += static_cast<double>(weights[index[i + k]]) * value[i + k];
    }
  }
  for (; i < count; ++i) sums[0] += static_cast<double>(weights[index[i]]) * value[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

double regularizer(std::span<const float> weights, double lambda) {
  double sums[4] = {};
  std::size_t i = 0;
  for (; i + 4 <= weights.size(); i += 4) {
    for (std::size_t k = 0; k < 4; ++k) {
      sums[k] += static_cast<double>(weights[i + k]) * weights[i + k];
    }
  }
  for (; i < weights.size(); ++i) sums[0] += static_cast<double>(weights[i]) * weights[i];
  return lambda / 2 * ((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

Evaluation evaluate(std::span<const float> model, const Dataset& data, Loss loss, double lambda,
                    std::size_t first_rows) {
  Evaluation result;
  result.rows = std::min(first_rows, data.rows());
  const double bias = model[data.features];
  for (std::size_t i = 0; i < result.rows; ++i) {
    const Row row = data.row(i);
    const double margin = row.label * (dot(model.data(), row) + bias);
    result.loss_sum += loss_at(loss, margin);
    result.wrong += margin <= 0 ? 1 : 0;
  }
  result.regularizer = regularizer(model.first(data.features), lambda);
  return result;
}

}  // namespace dunlin::svm
