// Problem: the part that one rank knows of the function that all ranks minimize together, f(x) =
// (1/n) (f_1(x) + ... + f_n(x)) (BlueFog, equation 1).
//
// The data are drawn from a seed and differ between ranks on purpose. Every rank's own optimum lies
// elsewhere, which biases decentralized gradient descent. Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "apps/consensus/linear_algebra.h"
#include "apps/consensus/ranks.h"

namespace dunlin::consensus {

enum class ProblemKind { kLeastSquares, kLogistic };
const char* to_string(ProblemKind kind);

struct ProblemOptions {
  ProblemKind kind = ProblemKind::kLeastSquares;
  std::size_t dimension = 8;
  std::size_t rows = 40;  // of each rank
  double noise = 0.1;     // standard deviation of a least-squares target
  double spread = 1;      // how far apart the ranks' own solutions lie, per coordinate
  double lambda = 0.1;    // weight of logistic regression's L2 term
  std::uint64_t seed = 1;
};

class Problem {
 public:
  virtual ~Problem() = default;

  virtual std::size_t dimension() const = 0;
  // `gradient` has dimension() elements, like x.
  virtual void gradient(std::span<const double> x, std::span<double> gradient) const = 0;
  virtual SymmetricMatrix hessian(std::span<const double> x) const = 0;
  // L: an upper bound of the eigenvalues of all Hessians.
  virtual double smoothness() const = 0;
};

// Makes the part of rank `rank`:
//   least squares   f(x) = |A x - b|^2 / (2 rows)
//   logistic        f(x) = the mean of log(1 + exp(-b_r a_r x)) + lambda / 2 |x|^2
// kInvalidArgument for sizes of 0 and for parameters that are negative or not finite. The same for
// least squares with fewer rows than dimensions, where no rank would have an optimum of its own.
Result<std::unique_ptr<Problem>> make_problem(const ProblemOptions& options, int rank);

// The minimum of the ranks' common function, and the shape of the function there.
struct Optimum {
  Vector x;
  double smoothness = 0;      // the largest L of any rank; the unit of steps
  EigenvalueRange curvature;  // of f's Hessian at x
};

// Collective. Applies Newton's method to the sum over all ranks; for least squares this solves the
// normal equations. x is exact up to rounding.
Result<Optimum> find_optimum(const Problem& problem, Ranks& ranks);

}  // namespace dunlin::consensus
