// Arithmetic on dense vectors of doubles, which the solvers share. The operands of one call have
// the same size. Stateless; any thread.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace dunlin::logreg {

using Vector = std::vector<double>;

// Four sums: the additions of one sum would wait for one another.
inline double dot(std::span<const double> a, std::span<const double> b) {
  double sums[4] = {};
  std::size_t i = 0;
  for (const std::size_t end = a.size() / 4 * 4; i < end; i += 4) {
    for (std::size_t k = 0; k < 4; ++k) sums[k] += a[i + k] * b[i + k];
  }
  for (; i < a.size(); ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

inline double norm(std::span<const double> a) {
  return std::sqrt(dot(a, a));
}

// target += factor * a
inline void add_scaled(std::span<double> target, double factor, std::span<const double> a) {
  for (std::size_t i = 0; i < target.size(); ++i) target[i] += factor * a[i];
}

}  // namespace dunlin::logreg
