// TRON: the trust-region Newton method of C.-J. Lin, R. C. Weng and S. S. Keerthi, "Trust Region
// Newton Method for Large-Scale Logistic Regression" (JMLR 9, 2008): minimises a smooth convex
// function of many variables, of which it asks Hessian-vector products only.
//
// Every iteration minimises the quadratic model of the function within a ball (the trust region),
// by conjugate gradients after Steihaug, and takes the step where the function falls about as the
// model says; how well it does decides about the ball's next radius. Owner thread only.
#pragma once

#include <cstddef>
#include <span>

namespace dunlin::logreg {

// A function that is twice differentiable (almost everywhere) and convex. It remembers where it is.
class SmoothFunction {
 public:
  virtual ~SmoothFunction() = default;
  virtual std::size_t dimension() const = 0;
  // At x, which becomes the place of the next gradient().
  virtual double value(std::span<const double> x) = 0;
  // Where value() was asked for last, which becomes the place of hessian_product().
  virtual void gradient(std::span<double> result) = 0;
  // The Hessian, where gradient() was asked for last, times v; `result` doesn't overlap v.
  virtual void hessian_product(std::span<const double> v, std::span<double> result) = 0;
};

struct TronOptions {
  // It is done when the gradient's norm has fallen to this share of what it was at the start.
  double tolerance = 1e-3;
  int most_iterations = 1000;  // trust-region steps, taken or not
};

enum class TronEnd {
  kConverged,   // to the tolerance
  kRounding,    // as far as the function's rounding allows, short of the tolerance
  kIterations,  // most_iterations were too few
  kNotFinite,   // the function is not finite, or the model has no minimum that is
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

// Starts at x and leaves the best point found there; x has function.dimension() elements.
TronReport tron(SmoothFunction& function, std::span<double> x, const TronOptions& options);

}  // namespace dunlin::logreg
