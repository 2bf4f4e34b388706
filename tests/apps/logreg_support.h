// Support for the tests of dunlin-logreg: small data sets, and derivatives by differences.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <utility>
#include <vector>

#include "apps/logreg/tron.h"
#include "apps/logreg/vectors.h"
#include "apps/svm/dataset.h"
#include "apps/svm/generator.h"

namespace dunlin::logreg {

struct LabeledRow {
  float label;
  std::vector<std::pair<std::uint32_t, float>> values;  // index, from 0, and value
};

inline svm::Dataset dataset_of(std::uint32_t features, const std::vector<LabeledRow>& rows) {
  svm::Dataset data;
  data.features = features;
  data.total_rows = rows.size();
  for (const LabeledRow& row : rows) {
    for (const auto& [index, value] : row.values) {
      data.indices.push_back(index);
      data.values.push_back(value);
    }
    data.row_begin.push_back(data.indices.size());
    data.labels.push_back(row.label);
  }
  return data;
}

inline svm::Dataset generated(std::uint64_t rows, std::uint32_t features, svm::Shard shard = {}) {
  svm::GeneratorOptions options;
  options.rows = rows;
  options.features = features;
  options.nonzeros_per_row = std::min<std::uint32_t>(features, 12);
  options.flipped = 0.05;
  return svm::generate(options, shard).value();
}

// A point that is neither zero nor regular.
inline Vector some_point(std::size_t size, double scale = 1) {
  Vector point(size);
  for (std::size_t k = 0; k < size; ++k)
    point[k] = scale * std::sin(1.7 * static_cast<double>(k) + 0.4);
  return point;
}

// Compares the gradient and Hessian products at x with central differences along each axis.
inline void expect_derivatives(SmoothFunction& function, const Vector& x, double tolerance) {
  constexpr double kStep = 1e-5;
  const std::size_t size = function.dimension();
  Vector gradient(size);
  function.value(x);
  function.gradient(gradient);
  Vector axis(size);
  std::vector<Vector> products(size, Vector(size));
  for (std::size_t k = 0; k < size; ++k) {
    axis[k] = 1;
    function.hessian_product(axis, products[k]);
    axis[k] = 0;
  }
  const double scale = 1 + norm(gradient);
  for (std::size_t k = 0; k < size; ++k) {
    double values[2];
    Vector gradients[2] = {Vector(size), Vector(size)};
    for (const int side : {0, 1}) {
      Vector beside = x;
      beside[k] += side == 0 ? -kStep : kStep;
      values[side] = function.value(beside);
      function.gradient(gradients[side]);
    }
    EXPECT_NEAR(gradient[k], (values[1] - values[0]) / (2 * kStep), tolerance * scale) << k;
    for (std::size_t j = 0; j < size; ++j) {
      EXPECT_NEAR(products[k][j], (gradients[1][j] - gradients[0][j]) / (2 * kStep),
                  tolerance * scale)
          << k << ", " << j;
    }
  }
}

}  // namespace dunlin::logreg
