// Tests the functions of logistic regression: values, derivatives, rows of all shapes, known
// minima.
#include "apps/logreg/logistic.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/apps/logreg_support.h"

namespace dunlin::logreg {
namespace {

// Computes the function of the header on a dense copy of the data.
double plain_value(const svm::Dataset& data, double bias, double cost, double weight,
                   const Vector& center, const Vector& x) {
  double sum = 0;
  for (std::size_t k = 0; k < x.size(); ++k) {
    sum += weight / 2 * (x[k] - center[k]) * (x[k] - center[k]);
  }
  for (std::size_t i = 0; i < data.rows(); ++i) {
    Vector row(data.features);
    for (std::size_t k = data.row_begin[i]; k < data.row_begin[i + 1]; ++k) {
      row[data.indices[k]] = data.values[k];
    }
    if (bias >= 0) row.push_back(bias);
    double product = 0;
    for (std::size_t k = 0; k < x.size(); ++k) product += row[k] * x[k];
    sum += cost * std::log(1 + std::exp(-data.labels[i] * product));
  }
  return sum;
}

// Rows with 0 to 6 values, so that all tails of the unrolled loops occur. No row has feature 2.
svm::Dataset ragged() {
  return dataset_of(9, {{1, {}},
                        {-1, {{0, 0.5F}}},
                        {1, {{1, -1.5F}, {8, 2}}},
                        {-1, {{0, 1}, {3, 1}, {4, -2}}},
                        {1, {{0, 1}, {1, 1}, {5, 0.25F}, {6, 3}}},
                        {1, {{3, -1}, {4, 1}, {5, 1}, {6, 1}, {8, 1}}},
                        {-1, {{0, 1}, {1, 2}, {3, 3}, {4, 4}, {5, -5}, {7, 6}}}});
}

TEST(Logistic, IsWhatTheHeaderSays) {
  const svm::Dataset data = ragged();
  for (const double bias : {-1.0, 0.0, 2.0}) {
    const Design design(data, bias);
    ASSERT_EQ(design.columns(), bias >= 0 ? 10U : 9U);
    ProximalLogistic function(design, 0.7, 1.3);
    const Vector center = some_point(design.columns(), 0.3);
    std::ranges::copy(center, function.center().begin());
    const Vector x = some_point(design.columns());
    EXPECT_NEAR(function.value(x), plain_value(data, bias, 0.7, 1.3, center, x), 1e-12);
    EXPECT_NEAR(loss_of(design, 0.7, x), plain_value(data, bias, 0.7, 0, center, x), 1e-12);
    function.set_weight(20);
    EXPECT_NEAR(function.value(x), plain_value(data, bias, 0.7, 20, center, x), 1e-12);
  }
}

TEST(Logistic, DerivativesAreThoseOfTheValue) {
  const svm::Dataset data = ragged();
  for (const double bias : {-1.0, 1.0}) {
    const Design design(data, bias);
    ProximalLogistic function(design, 3, 0.5);
    std::ranges::copy(some_point(design.columns(), 0.3), function.center().begin());
    for (const double scale : {0.0, 0.2, 1.0}) {
      expect_derivatives(function, some_point(design.columns(), scale), 1e-7);
    }
  }
}

TEST(Logistic, HessianProductsAreOfTheLastGradient) {
  const svm::Dataset data = ragged();
  const Design design(data, -1);
  ProximalLogistic function(design, 1, 1);
  const Vector v = some_point(9);
  Vector here(9);
  Vector again(9);
  function.value(some_point(9));
  function.gradient(here);
  function.hessian_product(v, here);
  function.value(Vector(9));  // a step that is not taken
  function.hessian_product(v, again);
  EXPECT_EQ(here, again);
  function.gradient(again);
  function.hessian_product(v, again);
  EXPECT_NE(here, again);
}

TEST(Logistic, FarMarginsNeitherOverflowNorVanish) {
  const svm::Dataset data = dataset_of(1, {{1, {{0, 1e30F}}}, {-1, {{0, 1e30F}}}});
  const Design design(data, -1);
  ProximalLogistic function(design, 1, 1);
  Vector gradient(1);
  EXPECT_NEAR(function.value(Vector{1}) / 1e30, 1, 1e-6);
  function.gradient(gradient);
  EXPECT_NEAR(gradient[0] / 1e30, 1, 1e-6);
  function.hessian_product(Vector{1}, gradient);
  EXPECT_TRUE(std::isfinite(gradient[0]));
}

TEST(Logistic, RowsWithoutValuesAndSetsWithoutRowsAreFine) {
  const svm::Dataset none = dataset_of(3, {});
  const Design empty(none, -1);
  ProximalLogistic proximal(empty, 1, 2);
  const Vector center = some_point(3);
  std::ranges::copy(center, proximal.center().begin());
  Vector x(3);
  EXPECT_EQ(tron(proximal, x, {.tolerance = 1e-12}).end, TronEnd::kConverged);
  for (std::size_t k = 0; k < 3; ++k) EXPECT_NEAR(x[k], center[k], 1e-12);
  EXPECT_EQ(loss_of(empty, 1, x), 0);

  const svm::Dataset blank = dataset_of(2, {{1, {}}, {-1, {}}, {1, {}}});
  const auto solved = solve_whole(Design(blank, -1), 4, 1e-10);
  ASSERT_TRUE(solved.is_ok());
  EXPECT_EQ(solved->model, Vector(2));
  EXPECT_NEAR(solved->report.value, 12 * std::log(2), 1e-12);
}

TEST(Logistic, AMinimumOfOneVariableIsWhereTheSlopeIsZero) {
  // 2 rows of label 1 and one of -1, all of value 1: w = C (2 / (1 + e^w) - 1 / (1 + e^-w)).
  const svm::Dataset data = dataset_of(1, {{1, {{0, 1}}}, {1, {{0, 1}}}, {-1, {{0, 1}}}});
  for (const double cost : {0.01, 1.0, 1000.0}) {
    double low = 0;
    double high = 1;
    while (high - low > 1e-15) {
      const double w = (low + high) / 2;
      const bool is_below = w < cost * (2 / (1 + std::exp(w)) - 1 / (1 + std::exp(-w)));
      (is_below ? low : high) = w;
      if (w == low && w == high) break;
    }
    const auto solved = solve_whole(Design(data, -1), cost, 1e-10);
    ASSERT_TRUE(solved.is_ok()) << solved.status().to_string();
    EXPECT_NEAR(solved->model[0], low, 1e-9) << cost;
  }
}

TEST(Logistic, TheWholeProblemIsSolvedToTheTolerance) {
  const svm::Dataset data = generated(500, 60);
  for (const double cost : {0.1, 1.0, 100.0}) {
    const Design design(data, 1);
    const auto solved = solve_whole(design, cost, 1e-10);
    ASSERT_TRUE(solved.is_ok()) << solved.status().to_string();
    EXPECT_LE(solved->report.gradient_norm, 1e-10 * solved->report.first_gradient_norm);
    // The second derivative is at least 1, so that the function is higher everywhere else.
    ProximalLogistic problem(design, cost, 1);
    const double least = problem.value(solved->model);
    for (const double scale : {1e-3, -1e-3, 1e-1}) {
      Vector beside = solved->model;
      const Vector away = some_point(beside.size());
      add_scaled(beside, scale, away);
      EXPECT_GE(problem.value(beside), least + 0.499 * scale * scale * dot(away, away));
    }
  }
}

TEST(Design, CountsTheRowsOnTheirLabelsSide) {
  const svm::Dataset data =
      dataset_of(2, {{1, {{0, 1}}}, {-1, {{0, 1}}}, {-1, {}}, {1, {{1, 2}}}, {1, {}}});
  EXPECT_EQ(Design(data, -1).count_right(Vector{1, 0.5}), 3U);
  EXPECT_EQ(Design(data, 1).count_right(Vector{1, 0.5, 0.25}), 3U);
  EXPECT_EQ(Design(data, 1).count_right(Vector{1, 0.5, -0.25}), 3U);
  EXPECT_EQ(Design(data, -1).count_right(Vector{-1, 0.5}), 3U);
}

}  // namespace
}  // namespace dunlin::logreg
