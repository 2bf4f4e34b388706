#include "collectives/graph/lanczos.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace dunlin::collective {
namespace {

// Steps between two checks of the tridiagonal matrix. A check costs far less than one product.
constexpr int kCheckInterval = 10;
// A smaller new direction is rounding noise: the subspace of the start vector is exhausted.
constexpr double kBreakdown = 1e-14;
// Least pivot. Rounding may make a pivot zero or negative, which would divide by zero or change the
// sign.
constexpr double kLeastPivot = 1e-32;

// The matrix in the Lanczos basis: alpha is on the diagonal, beta[k] is between rows k and k + 1.
// The last beta couples to the next direction.
struct Tridiagonal {
  std::vector<double> alpha;
  std::vector<double> beta;
};

// The three-term recurrence. Vectors are not stored, so they cannot be orthogonalized again. Copies
// of converged eigenvalues may therefore appear later, but the largest one stays right (Paige
// 1980).
class Recurrence {
 public:
  explicit Recurrence(SymmetricOperator& matrix)
      : matrix_(matrix),
        previous_(matrix.size(), 0.0),
        current_(matrix.size()),
        next_(matrix.size()) {
    std::mt19937_64 random(1);
    for (double& value : current_) value = std::ldexp(static_cast<double>(random() >> 11), -52) - 1;
    scale(current_, 1 / std::sqrt(dot(current_, current_)));
  }

  const std::vector<double>& current() const { return current_; }

  // Adds a row to `t` and continues with the next direction. False: there is no further direction.
  bool step(Tridiagonal& t) {
    matrix_.apply(current_, next_);
    const double back = t.beta.empty() ? 0 : t.beta.back();
    const double alpha = dot(current_, next_) - back * dot(current_, previous_);
    for (std::size_t i = 0; i < next_.size(); ++i) {
      next_[i] -= alpha * current_[i] + back * previous_[i];
    }
    const double beta = std::sqrt(dot(next_, next_));
    t.alpha.push_back(alpha);
    t.beta.push_back(beta);
    if (beta <= kBreakdown) return false;
    scale(next_, 1 / beta);
    std::swap(previous_, current_);
    std::swap(current_, next_);
    return true;
  }

 private:
  static void scale(std::vector<double>& x, double by) {
    for (double& value : x) value *= by;
  }

  SymmetricOperator& matrix_;
  std::vector<double> previous_;
  std::vector<double> current_;
  std::vector<double> next_;
};

// True if x lies above all eigenvalues: x - T is then positive definite, so all its pivots are
// positive.
bool is_above_all(const Tridiagonal& t, double x) {
  double pivot = x - t.alpha[0];
  for (std::size_t k = 1; k < t.alpha.size() && pivot > 0; ++k) {
    pivot = x - t.alpha[k] - t.beta[k - 1] * t.beta[k - 1] / pivot;
  }
  return pivot > 0;
}

// Finds by bisection the least number that is above all eigenvalues.
double largest_value(const Tridiagonal& t) {
  double low = t.alpha[0];
  double high = low;
  for (std::size_t k = 0; k < t.alpha.size(); ++k) {
    const double before = k == 0 ? 0 : t.beta[k - 1];
    const double after = k + 1 == t.alpha.size() ? 0 : t.beta[k];
    low = std::max(low, t.alpha[k]);
    high = std::max(high, t.alpha[k] + before + after);
  }
  high = std::nextafter(high + std::abs(high) * 1e-15, INFINITY);
  for (double middle = low + (high - low) / 2; low < middle && middle < high;
       middle = low + (high - low) / 2) {
    (is_above_all(t, middle) ? high : low) = middle;
  }
  return high;
}

// Solves (shift - T) x = x in place. `shift` is above all eigenvalues, so no pivoting is needed.
void solve_shifted(const Tridiagonal& t, double shift, std::vector<double>& x) {
  const std::size_t size = t.alpha.size();
  std::vector<double> pivot(size);
  pivot[0] = std::max(kLeastPivot, shift - t.alpha[0]);
  for (std::size_t k = 1; k < size; ++k) {
    const double factor = t.beta[k - 1] / pivot[k - 1];
    pivot[k] = std::max(kLeastPivot, shift - t.alpha[k] - factor * t.beta[k - 1]);
    x[k] += factor * x[k - 1];
  }
  x[size - 1] /= pivot[size - 1];
  for (std::size_t k = size - 1; k-- > 0;) x[k] = (x[k] + t.beta[k] * x[k + 1]) / pivot[k];
}

struct TridiagonalPair {
  double value = 0;
  std::vector<double> vector;
};

// Finds the pair by bisection and inverse iteration.
TridiagonalPair largest_pair(const Tridiagonal& t) {
  TridiagonalPair pair{largest_value(t), std::vector<double>(t.alpha.size(), 1.0)};
  for (int iteration = 0; iteration < 3; ++iteration) {
    solve_shifted(t, pair.value, pair.vector);
    const double length = std::sqrt(dot(pair.vector, pair.vector));
    for (double& value : pair.vector) value /= length;
  }
  return pair;
}

TridiagonalPair find_value(SymmetricOperator& matrix, int max_steps, double tolerance) {
  Recurrence recurrence(matrix);
  Tridiagonal t;
  TridiagonalPair pair;
  for (int step = 1; step <= std::max(1, max_steps); ++step) {
    const bool goes_on = recurrence.step(t);
    if (goes_on && step % kCheckInterval != 0 && step < max_steps) continue;
    pair = largest_pair(t);
    if (!goes_on || t.beta.back() * std::abs(pair.vector.back()) <= tolerance) break;
  }
  return pair;
}

// Repeats the recurrence to sum its vectors. The same operations give the same numbers.
std::vector<double> expand(SymmetricOperator& matrix, const std::vector<double>& coefficients) {
  std::vector<double> vector(matrix.size(), 0.0);
  Recurrence recurrence(matrix);
  Tridiagonal t;
  for (const double coefficient : coefficients) {
    for (std::size_t i = 0; i < vector.size(); ++i)
      vector[i] += coefficient * recurrence.current()[i];
    recurrence.step(t);
  }
  const double length = std::sqrt(dot(vector, vector));
  for (double& value : vector) value /= length;
  return vector;
}

}  // namespace

double dot(std::span<const double> x, std::span<const double> y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

Eigenpair largest_eigenpair(SymmetricOperator& matrix, int max_steps, double tolerance) {
  const TridiagonalPair pair = find_value(matrix, max_steps, tolerance);
  Eigenpair result;
  result.vector = expand(matrix, pair.vector);
  std::vector<double> image(matrix.size());
  matrix.apply(result.vector, image);
  result.value = dot(result.vector, image);
  for (std::size_t i = 0; i < image.size(); ++i) image[i] -= result.value * result.vector[i];
  result.residual = std::sqrt(dot(image, image));
  return result;
}

}  // namespace dunlin::collective
