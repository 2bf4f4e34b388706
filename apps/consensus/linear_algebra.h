// Linear algebra for problems of a few dozen variables: dense symmetric matrices and plain loops.
// Values; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/status.h"

namespace dunlin::consensus {

using Vector = std::vector<double>;

double dot(std::span<const double> a, std::span<const double> b);
double norm(std::span<const double> a);
double distance(std::span<const double> a, std::span<const double> b);

// Symmetric; both halves are stored.
class SymmetricMatrix {
 public:
  explicit SymmetricMatrix(std::size_t size) : size_(size), entries_(size * size) {}

  std::size_t size() const { return size_; }
  double& operator()(std::size_t row, std::size_t column) { return entries_[row * size_ + column]; }
  double operator()(std::size_t row, std::size_t column) const {
    return entries_[row * size_ + column];
  }
  std::span<double> entries() { return entries_; }
  std::span<const double> entries() const { return entries_; }

  // Adds weight * a a^T.
  void add_square(std::span<const double> a, double weight);

 private:
  std::size_t size_;
  Vector entries_;
};

// Returns the x with matrix x = right, by Cholesky's decomposition. kInvalidArgument when the
// matrix is not positive definite.
Result<Vector> solve(SymmetricMatrix matrix, Vector right);

struct EigenvalueRange {
  double smallest = 0;
  double largest = 0;
};
// Computed by Jacobi's rotations, up to rounding.
EigenvalueRange eigenvalue_range(SymmetricMatrix matrix);

}  // namespace dunlin::consensus
