#include "collectives/graph/spectral.h"

#include <fmt/format.h>

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "collectives/graph/lanczos.h"
#include "collectives/graph/properties.h"

namespace dunlin::collective {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

// Computes 1 - |(1 + sum over s of e^(i k theta s)) / (d + 1)|, theta = 2 pi / N, for one frequency
// k, as (1 - |z|^2) / (1 + |z|) with 1 - z = x - i y. In this form a gap of 1e-10 keeps its digits.
class FourierRow {
 public:
  FourierRow(std::size_t nodes, const std::vector<int>& shifts)
      : nodes_(nodes), shifts_(shifts), one_minus_cos_(nodes), sin_(nodes) {
    for (std::size_t i = 0; i < nodes; ++i) {
      const double half_angle =
          std::numbers::pi * static_cast<double>(i) / static_cast<double>(nodes);
      one_minus_cos_[i] = 2 * std::sin(half_angle) * std::sin(half_angle);
      sin_[i] = std::sin(2 * half_angle);
    }
  }

  double distance_from_1(std::size_t frequency) const {
    double x = 0;
    double y = 0;
    for (const int shift : shifts_) {
      const std::size_t at = frequency * static_cast<std::size_t>(shift) % nodes_;
      x += one_minus_cos_[at];
      y += sin_[at];
    }
    const double terms = static_cast<double>(shifts_.size()) + 1;
    x /= terms;
    y /= terms;
    const double square = std::max(0.0, (1 - x) * (1 - x) + y * y);
    return std::max(0.0, (2 * x - x * x - y * y) / (1 + std::sqrt(square)));
  }

 private:
  std::size_t nodes_;
  const std::vector<int>& shifts_;
  std::vector<double> one_minus_cos_;
  std::vector<double> sin_;
};

Spectrum circulant_spectrum(int nodes, const std::vector<int>& shifts) {
  Spectrum result;
  result.method = SpectralMethod::kCirculant;
  const FourierRow row(static_cast<std::size_t>(nodes), shifts);
  // Frequencies k and N - k are conjugate.
  for (std::size_t k = 1; k <= static_cast<std::size_t>(nodes) / 2; ++k) {
    result.gap = std::min(result.gap, row.distance_from_1(k));
  }
  result.sigma_2 = 1 - result.gap;
  result.error_bound = kEpsilon * static_cast<double>(shifts.size() + 1);
  return result;
}

// Given that sigma^2 is within `residual` of `value`, bounds the distance of sigma from its root.
double root_error(double value, double residual) {
  const double root = std::sqrt(value);
  return std::max(std::sqrt(value + residual) - root,
                  root - std::sqrt(std::max(0.0, value - residual)));
}

// Uses the eigenvalues of P^T P. Squaring costs digits only of singular values near 0, and sigma_2
// of a sparse graph is not near 0. Eigen's BDCSVD is not an option: version 3.4.0 is off in the
// fifth digit for the ring of 68 nodes. Its JacobiSVD takes tens of times as long.
Spectrum dense_spectrum(const MixingMatrix& matrix) {
  const Graph& graph = matrix.graph();
  Eigen::MatrixXd dense = Eigen::MatrixXd::Zero(graph.nodes(), graph.nodes());
  for (int i = 0; i < graph.nodes(); ++i) {
    dense(i, i) = matrix.self_weight(i);
    for (const int j : graph.in_neighbors(i)) dense(i, j) = matrix.weight(i, j);
  }
  const Eigen::MatrixXd square = dense.transpose() * dense;
  const Eigen::VectorXd values =
      Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(square, Eigen::EigenvaluesOnly)
          .eigenvalues()
          .cwiseMax(0);  // ascending
  const double second = values.size() > 1 ? values(values.size() - 2) : 0;
  Spectrum result;
  result.method = SpectralMethod::kDense;
  result.is_doubly_stochastic = matrix.is_doubly_stochastic();
  result.sigma_1 = std::sqrt(values(values.size() - 1));
  result.sigma_2 = std::sqrt(second);
  result.gap = 1 - result.sigma_2;
  result.error_bound = root_error(second, kEpsilon * graph.nodes() * values(values.size() - 1));
  return result;
}

// y = P^T P x - value * v (v . x). This moves the known eigenpair (value, v) to 0.
class DeflatedSquare final : public SymmetricOperator {
 public:
  DeflatedSquare(const MixingMatrix& matrix, Eigenpair known)
      : matrix_(matrix), known_(std::move(known)), scratch_(size()) {}

  std::size_t size() const override { return static_cast<std::size_t>(matrix_.graph().nodes()); }
  void apply(std::span<const double> x, std::span<double> y) override {
    matrix_.multiply(x, scratch_);
    matrix_.multiply_transposed(scratch_, y);
    if (known_.vector.empty()) return;
    const double along = known_.value * dot(known_.vector, x);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] -= along * known_.vector[i];
  }

 private:
  const MixingMatrix& matrix_;
  Eigenpair known_;
  std::vector<double> scratch_;
};

// P 1 = 1 always holds; P^T 1 = 1 holds if P is doubly stochastic.
Eigenpair average_pair(std::size_t nodes) {
  return {1, std::vector<double>(nodes, 1 / std::sqrt(static_cast<double>(nodes))), 0};
}

Spectrum iterative_spectrum(const MixingMatrix& matrix, const SpectralOptions& options) {
  const auto nodes = static_cast<std::size_t>(matrix.graph().nodes());
  Eigenpair first = average_pair(nodes);
  // Tolerance for sigma^2. It leaves room for the errors of two values.
  const double residual = options.tolerance / 2;
  double first_error = 0;
  const bool is_doubly_stochastic = matrix.is_doubly_stochastic();
  if (!is_doubly_stochastic) {
    DeflatedSquare square(matrix, {});
    first = largest_eigenpair(square, options.max_steps, residual);
    first_error = root_error(first.value, first.residual);
  }
  Spectrum result;
  result.method = SpectralMethod::kIterative;
  result.is_doubly_stochastic = is_doubly_stochastic;
  result.sigma_1 = std::sqrt(first.value);

  DeflatedSquare square(matrix, std::move(first));
  const Eigenpair second = largest_eigenpair(square, options.max_steps, residual);
  const double value = std::max(0.0, second.value);
  result.sigma_2 = std::sqrt(value);
  result.gap = 1 - result.sigma_2;
  result.error_bound = root_error(value, second.residual) + first_error;
  result.converged = result.error_bound <= std::min(options.tolerance, std::abs(result.gap) / 100);
  return result;
}

}  // namespace

const char* to_string(SpectralMethod method) {
  switch (method) {
    case SpectralMethod::kCirculant:
      return "circulant";
    case SpectralMethod::kDense:
      return "dense";
    case SpectralMethod::kIterative:
      return "iterative";
  }
  return "unknown";
}

Result<Spectrum> spectrum(const MixingMatrix& matrix, const SpectralOptions& options) {
  const Graph& graph = matrix.graph();
  // Circulant graphs are regular, so both weightings give the same matrix.
  if (options.method.value_or(SpectralMethod::kCirculant) == SpectralMethod::kCirculant) {
    if (const auto shifts = circulant_shifts(graph))
      return circulant_spectrum(graph.nodes(), *shifts);
    if (options.method) {
      return Status(Code::kInvalidArgument,
                    fmt::format("graph '{}' is not circulant", graph.spec()));
    }
  }
  const auto by_size =
      graph.nodes() <= kDenseNodes ? SpectralMethod::kDense : SpectralMethod::kIterative;
  return options.method.value_or(by_size) == SpectralMethod::kDense
             ? dense_spectrum(matrix)
             : iterative_spectrum(matrix, options);
}

std::optional<double> mixing_rounds(const Spectrum& spectrum, double remaining) {
  if (!spectrum.is_doubly_stochastic || spectrum.gap <= spectrum.error_bound) return std::nullopt;
  if (spectrum.sigma_2 <= remaining) return 1;
  return std::ceil(std::log(remaining) / std::log1p(-spectrum.gap));
}

}  // namespace dunlin::collective
