// TRON: the trust-region Newton method of C.-J. Lin, R. C. Weng and S. S. Keerthi, "Trust Region
// Newton Method for Large-Scale Logistic Regression" (JMLR 9, 2008). It minimizes a smooth convex
// function of many variables, and needs Hessian-vector products only.
//
// Every iteration minimizes the quadratic model of the function within a ball (the trust region),
// by conjugate gradients after Steihaug. It takes the step if the function falls about as the model
// predicts. The quality of the prediction decides the next radius of the ball. Owner thread only.
#pragma once

#include <cstddef>
#include <span>

namespace dunlin::logreg {

// A convex function that is twice differentiable (almost everywhere). It has a current point.
class SmoothFunction {
 public:
  virtual ~SmoothFunction() = default;
  virtual std::size_t dimension() const = 0;
  // Returns the value at x, which becomes the point of the next gradient().
  virtual double value(std::span<const double> x) = 0;
  // The gradient at the point of the last value(), which becomes that of hessian_product().
  virtual void gradient(std::span<double> result) = 0;
  // The Hessian at the point of the last gradient(), times v; `result` does not overlap v.
  virtual void hessian_product(std::span<const double> v, std::span<double> result) = 0;
};

struct TronOptions {
  // The solver stops when the gradient's norm has fallen to this share of its first value.
  double tolerance = 1e-3;
  int most_iterations = 1000;  // trust-region steps, taken or rejected
};

enum class TronEnd {
  kConverged,   // to the tolerance
  kRounding,    // as far as the function's rounding allows, before the tolerance
  kIterations,  // most_iterations was reached
  kNotFinite,   // the function is not finite, or the model has no finite minimum
};
const char* to_string(TronEnd end);

struct TronReport {
  double value = 0;
  double gradient_norm = 0;
  double first_gradient_norm = 0;
  int iterations = 0;
  int products = 0;  // with the Hessian: steps of conjugate gradients
  TronEnd end = TronEnd::kConverged;
};

// Starts at x and leaves the best point there; x has function.dimension() elements.
TronReport tron(SmoothFunction& function, std::span<double> x, const TronOptions& options);

}  // namespace dunlin::logreg
