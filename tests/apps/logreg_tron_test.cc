// TRON on functions whose minima are known.
#include "apps/logreg/tron.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/apps/logreg_support.h"

namespace dunlin::logreg {
namespace {

// least + 1/2 sum d_k (x_k - m_k)^2.
class Quadratic final : public SmoothFunction {
 public:
  Quadratic(Vector diagonal, Vector minimum, double least = 0)
      : diagonal_(std::move(diagonal)),
        minimum_(std::move(minimum)),
        least_(least),
        x_(minimum_.size()) {}
  std::size_t dimension() const override { return x_.size(); }
  double value(std::span<const double> x) override {
    x_.assign(x.begin(), x.end());
    double sum = least_;
    for (std::size_t k = 0; k < x_.size(); ++k) {
      sum += 0.5 * diagonal_[k] * (x_[k] - minimum_[k]) * (x_[k] - minimum_[k]);
    }
    return sum;
  }
  void gradient(std::span<double> result) override {
    for (std::size_t k = 0; k < x_.size(); ++k) result[k] = diagonal_[k] * (x_[k] - minimum_[k]);
  }
  void hessian_product(std::span<const double> v, std::span<double> result) override {
    for (std::size_t k = 0; k < x_.size(); ++k) result[k] = diagonal_[k] * v[k];
  }

 private:
  Vector diagonal_;
  Vector minimum_;
  double least_;
  Vector x_;
};

// sum sqrt(1 + (s x_k)^2). It is nearly flat far away, where Newton's full step overshoots more and
// more (from x it goes to -s^2 x^3), and sharp at its minimum, 0.
class Valley final : public SmoothFunction {
 public:
  Valley(std::size_t size, double sharpness) : sharpness_(sharpness), x_(size), at_(size) {}
  std::size_t dimension() const override { return x_.size(); }
  double value(std::span<const double> x) override {
    ++values;
    x_.assign(x.begin(), x.end());
    double sum = 0;
    for (const double x_k : x_) sum += std::hypot(1, sharpness_ * x_k);
    return sum;
  }
  void gradient(std::span<double> result) override {
    at_ = x_;
    for (std::size_t k = 0; k < x_.size(); ++k) {
      result[k] = sharpness_ * sharpness_ * x_[k] / std::hypot(1, sharpness_ * x_[k]);
    }
  }
  void hessian_product(std::span<const double> v, std::span<double> result) override {
    for (std::size_t k = 0; k < at_.size(); ++k) {
      result[k] = sharpness_ * sharpness_ * v[k] / std::pow(std::hypot(1, sharpness_ * at_[k]), 3);
    }
  }

  int values = 0;

 private:
  double sharpness_;
  Vector x_;
  Vector at_;
};

// A function without a minimum: c x.
class Slope final : public SmoothFunction {
 public:
  explicit Slope(double slope) : slope_(slope) {}
  std::size_t dimension() const override { return 1; }
  double value(std::span<const double> x) override { return slope_ * x[0]; }
  void gradient(std::span<double> result) override { result[0] = slope_; }
  void hessian_product(std::span<const double>, std::span<double> result) override {
    result[0] = 0;
  }

 private:
  double slope_;
};

TEST(Tron, FindsTheMinimumOfAQuadratic) {
  for (const std::size_t size : {1UL, 2UL, 7UL, 100UL}) {
    Vector diagonal(size);
    for (std::size_t k = 0; k < size; ++k) diagonal[k] = 1 + static_cast<double>(k % 9);
    const Vector minimum = some_point(size, 3);
    Quadratic quadratic(diagonal, minimum);
    Vector x(size);
    const TronReport report = tron(quadratic, x, {.tolerance = 1e-12});
    EXPECT_EQ(report.end, TronEnd::kConverged) << to_string(report.end);
    EXPECT_LE(report.gradient_norm, 1e-12 * report.first_gradient_norm);
    for (std::size_t k = 0; k < size; ++k) EXPECT_NEAR(x[k], minimum[k], 1e-10) << k;
    EXPECT_EQ(report.value, quadratic.value(x));
  }
}

TEST(Tron, StandsAnIllConditionedQuadratic) {
  Vector diagonal(60);
  for (std::size_t k = 0; k < diagonal.size(); ++k)
    diagonal[k] = std::pow(10, 0.1 * static_cast<double>(k));
  const Vector minimum = some_point(diagonal.size());
  Quadratic quadratic(diagonal, minimum);
  Vector x(diagonal.size());
  const TronReport report = tron(quadratic, x, {.tolerance = 1e-10});
  EXPECT_EQ(report.end, TronEnd::kConverged) << to_string(report.end);
  for (std::size_t k = 0; k < x.size(); ++k) EXPECT_NEAR(x[k], minimum[k], 1e-3) << k;
}

// The first radius is the length of the gradient, which is far too small here, and the value hides
// the progress.
TEST(Tron, IsNotHeldUpByASmallFirstRadius) {
  Quadratic function({1e-12, 1e-12}, {100, -100}, 1);
  Vector x(2);
  const TronReport report = tron(function, x, {.tolerance = 1e-6});
  EXPECT_EQ(report.end, TronEnd::kConverged) << to_string(report.end);
  EXPECT_LT(report.iterations, 50);
  EXPECT_NEAR(x[0], 100, 1e-3);
}

TEST(Tron, ComesHomeFromWhereNewtonsMethodDiverges) {
  Valley valley(5, 3);
  expect_derivatives(valley, some_point(5), 1e-6);
  Vector x = some_point(5, 20);
  valley.values = 0;
  const TronReport report = tron(valley, x, {.tolerance = 1e-11});
  EXPECT_EQ(report.end, TronEnd::kConverged) << to_string(report.end);
  EXPECT_NEAR(norm(x), 0, 1e-9);
  EXPECT_NEAR(report.value, 5, 1e-12);
  // One value for every step, and one at the start.
  EXPECT_EQ(valley.values, report.iterations + 1);
}

TEST(Tron, NeverGoesUp) {
  Valley valley(3, 2);
  Vector x = some_point(3, 40);
  double before = valley.value(x);
  for (int iterations = 1; iterations < 30; ++iterations) {
    Vector again = some_point(3, 40);
    const TronReport report =
        tron(valley, again, {.tolerance = 1e-300, .most_iterations = iterations});
    EXPECT_LE(report.value, before) << iterations;
    EXPECT_EQ(valley.value(again), report.value) << iterations;
    before = report.value;
    if (report.end != TronEnd::kIterations) break;
    EXPECT_EQ(report.iterations, iterations);
  }
  EXPECT_NEAR(before, 3, 1e-9);
}

TEST(Tron, StaysAtTheMinimum) {
  const Vector minimum = some_point(4);
  Quadratic quadratic(Vector(4, 2), minimum);
  Vector x = minimum;
  const TronReport report = tron(quadratic, x, {});
  EXPECT_EQ(report.end, TronEnd::kConverged);
  EXPECT_EQ(report.iterations, 0);
  EXPECT_EQ(x, minimum);
}

TEST(Tron, EndsWhereRoundingHidesTheRest) {
  Valley valley(4, 2);
  Vector x = some_point(4, 2);
  const TronReport report = tron(valley, x, {.tolerance = 1e-300});
  EXPECT_TRUE(report.end == TronEnd::kRounding || report.gradient_norm == 0);
  EXPECT_LT(report.gradient_norm, 1e-12);
  EXPECT_LT(report.iterations, 100);
}

TEST(Tron, SaysWhatIsNotFinite) {
  Quadratic quadratic({1}, {std::numeric_limits<double>::quiet_NaN()});
  Vector x(1);
  EXPECT_EQ(tron(quadratic, x, {}).end, TronEnd::kNotFinite);
  Slope slope(1);
  Vector y(1);
  const TronReport report = tron(slope, y, {.most_iterations = 5000});
  EXPECT_EQ(report.end, TronEnd::kNotFinite) << to_string(report.end);
  EXPECT_TRUE(std::isfinite(y[0]));
}

TEST(Tron, IterationsAreLimited) {
  Slope slope(1);
  Vector x(1);
  const TronReport report = tron(slope, x, {.most_iterations = 4});
  EXPECT_EQ(report.end, TronEnd::kIterations);
  EXPECT_EQ(report.iterations, 4);
  EXPECT_LT(x[0], -4);
}

}  // namespace
}  // namespace dunlin::logreg
