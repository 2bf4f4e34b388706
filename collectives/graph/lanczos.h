// The largest eigenvalue of a large symmetric matrix that is known by its products only.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace dunlin::collective {

class SymmetricOperator {
 public:
  virtual ~SymmetricOperator() = default;
  virtual std::size_t size() const = 0;
  // y = A x; both of size(), not overlapping.
  virtual void apply(std::span<const double> x, std::span<double> y) = 0;
};

struct Eigenpair {
  double value = 0;
  std::vector<double> vector;  // of length 1
  double residual = 0;  // |A vector - value * vector|: an eigenvalue lies this near to `value`
};

// Lanczos from a fixed pseudo-random start, until the residual's estimate is at most `tolerance` or
// after `max_steps` products; then as many products again for the vector. The residual that is
// returned is measured and holds whether or not the tolerance was met. Takes about five vectors of
// memory.
Eigenpair largest_eigenpair(SymmetricOperator& matrix, int max_steps, double tolerance);

double dot(std::span<const double> x, std::span<const double> y);

}  // namespace dunlin::collective
