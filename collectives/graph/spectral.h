// The spectral gap of a mixing matrix: how fast models spread by repeated reduces.
//
// gap = 1 - sigma_2(P), where sigma_1 >= sigma_2 >= ... are the singular values of P (paper,
// appendix A). One reduce shrinks the distance of all models from their average by at least the
// factor sigma_2, if P is doubly stochastic; then sigma_1 is 1 and the gap lies in 0..1, with 0
// when the graph isn't connected.
//
// When P isn't doubly stochastic (irregular graphs with uniform weights: star, chain, mesh),
// sigma_1 is above 1, the paper's two wordings 1 - sigma_2 and sigma_1 - sigma_2 differ, and
// neither bounds the speed. We compute 1 - sigma_2 here as well, which may even be negative, and
// report sigma_1 beside it; metropolis weights give such graphs a gap that means something.
//
// Pure functions; any thread. Deterministic.
#pragma once

#include <cstddef>
#include <optional>

#include "collectives/graph/mixing.h"
#include "runtime/status.h"

namespace dunlin::collective {

enum class SpectralMethod {
  kCirculant,  // every node has the same shifts: closed form, the Fourier transform of one row
  kDense,      // all eigenvalues of P^T P by Eigen
  kIterative,  // Lanczos on P^T P
};
const char* to_string(SpectralMethod method);

struct SpectralOptions {
  // Absent: circulant where the graph is; else dense up to kDenseNodes nodes; else iterative.
  std::optional<SpectralMethod> method;
  // Of the iterative method: products with P^T P per singular value, and what counts as converged.
  int max_steps = 2000;
  double tolerance = 1e-8;
};
inline constexpr int kDenseNodes = 400;

struct Spectrum {
  double sigma_1 = 1;
  double sigma_2 = 0;  // 0 for a single node
  double gap = 1;      // 1 - sigma_2, without the loss of digits where sigma_2 is almost 1
  bool is_doubly_stochastic = true;
  SpectralMethod method = SpectralMethod::kCirculant;
  // Some singular value lies within this distance of sigma_2: rounding for the direct methods, the
  // residual of the singular vector for the iterative one.
  double error_bound = 0;
  // False when the iterative method ran out of steps: error_bound is above the tolerance or above a
  // hundredth of the gap. sigma_2 is then too small, that is, `gap` is an upper bound.
  bool converged = true;
};

// Asking for kCirculant where the graph or the weights aren't is an error.
Result<Spectrum> spectrum(const MixingMatrix& matrix, const SpectralOptions& options = {});

// Reduces until the models' distance from their average is at most `remaining` of what it was: the
// smallest t with sigma_2^t <= remaining, which is an upper bound on what is needed. Absent when
// sigma_2 says nothing about it (P isn't doubly stochastic) or the graph doesn't mix (the gap is
// 0).
inline constexpr double kMixedTo = 1e-3;
std::optional<double> mixing_rounds(const Spectrum& spectrum, double remaining = kMixedTo);

}  // namespace dunlin::collective
