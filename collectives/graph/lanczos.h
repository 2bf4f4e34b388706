// The largest eigenvalue of a large symmetric matrix of which only products are known.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace dunlin::collective {

class SymmetricOperator {
 public:
  virtual ~SymmetricOperator() = default;
  virtual std::size_t size() const = 0;
  // Computes y = A x. Both are of size() and do not overlap.
  virtual void apply(std::span<const double> x, std::span<double> y) = 0;
};

struct Eigenpair {
  double value = 0;
  std::vector<double> vector;  // of norm 1
  double residual = 0;  // |A vector - value * vector|; some eigenvalue is this close to `value`
};

// Runs Lanczos from a fixed pseudo-random start until the estimated residual is at most
// `tolerance`, for at most `max_steps` products, then as many products again for the vector. The
// returned residual is measured; it holds whether or not the tolerance was met. Uses memory for
// about five vectors.
Eigenpair largest_eigenpair(SymmetricOperator& matrix, int max_steps, double tolerance);

double dot(std::span<const double> x, std::span<const double> y);

}  // namespace dunlin::collective
