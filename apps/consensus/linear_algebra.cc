#include "apps/consensus/linear_algebra.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace dunlin::consensus {
namespace {

// Rotates rows and columns p and q such that matrix(p, q) becomes 0.
void rotate(SymmetricMatrix& matrix, std::size_t p, std::size_t q) {
  const double theta = (matrix(q, q) - matrix(p, p)) / (2 * matrix(p, q));
  const double tangent = std::copysign(1.0, theta) / (std::abs(theta) + std::hypot(theta, 1.0));
  const double cosine = 1 / std::hypot(tangent, 1.0);
  const double sine = tangent * cosine;
  for (std::size_t k = 0; k < matrix.size(); ++k) {
    const double kp = matrix(k, p);
    const double kq = matrix(k, q);
    matrix(k, p) = cosine * kp - sine * kq;
    matrix(k, q) = sine * kp + cosine * kq;
  }
  for (std::size_t k = 0; k < matrix.size(); ++k) {
    const double pk = matrix(p, k);
    const double qk = matrix(q, k);
    matrix(p, k) = cosine * pk - sine * qk;
    matrix(q, k) = sine * pk + cosine * qk;
  }
}

}  // namespace

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double norm(std::span<const double> a) {
  return std::sqrt(dot(a, a));
}

double distance(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

void SymmetricMatrix::add_square(std::span<const double> a, double weight) {
  for (std::size_t row = 0; row < size_; ++row) {
    for (std::size_t column = 0; column < size_; ++column) {
      (*this)(row, column) += weight * a[row] * a[column];
    }
  }
}

Result<Vector> solve(SymmetricMatrix matrix, Vector right) {
  // The lower triangle becomes L with matrix = L L^T, and `right` first L^-1 right.
  for (std::size_t row = 0; row < matrix.size(); ++row) {
    for (std::size_t column = 0; column <= row; ++column) {
      for (std::size_t k = 0; k < column; ++k) {
        matrix(row, column) -= matrix(row, k) * matrix(column, k);
      }
      if (column < row) matrix(row, column) /= matrix(column, column);
    }
    if (!(matrix(row, row) > 0)) {
      return Status(Code::kInvalidArgument,
                    fmt::format("the matrix is not positive definite: pivot {} is {:g}", row,
                                matrix(row, row)));
    }
    matrix(row, row) = std::sqrt(matrix(row, row));
    for (std::size_t k = 0; k < row; ++k) right[row] -= matrix(row, k) * right[k];
    right[row] /= matrix(row, row);
  }
  for (std::size_t row = matrix.size(); row-- > 0;) {
    for (std::size_t k = row + 1; k < matrix.size(); ++k) right[row] -= matrix(k, row) * right[k];
    right[row] /= matrix(row, row);
  }
  return right;
}

EigenvalueRange eigenvalue_range(SymmetricMatrix matrix) {
  // Converges quadratically: a few sweeps suffice for any size.
  constexpr int kMostSweeps = 50;
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    bool is_diagonal = true;
    for (std::size_t p = 0; p < matrix.size(); ++p) {
      for (std::size_t q = p + 1; q < matrix.size(); ++q) {
        const double scale = std::abs(matrix(p, p)) + std::abs(matrix(q, q));
        if (std::abs(matrix(p, q)) <= 1e-16 * scale) continue;
        is_diagonal = false;
        rotate(matrix, p, q);
      }
    }
    if (is_diagonal) break;
  }
  EigenvalueRange range{matrix(0, 0), matrix(0, 0)};
  for (std::size_t i = 1; i < matrix.size(); ++i) {
    range.smallest = std::min(range.smallest, matrix(i, i));
    range.largest = std::max(range.largest, matrix(i, i));
  }
  return range;
}

}  // namespace dunlin::consensus
