// The spectral gap of a mixing matrix, which tells how fast repeated reduces spread models.
//
// gap = 1 - sigma_2(P), where sigma_1 >= sigma_2 >= ... are the singular values of P (ASAP paper,
// appendix A). If P is doubly stochastic, one reduce shrinks the distance of all models from their
// average by at least the factor sigma_2. Then sigma_1 is 1 and the gap lies in 0..1; it is 0 if
// the graph is not connected.
//
// If P is not doubly stochastic (irregular graphs with uniform weights: star, chain, mesh), sigma_1
// is above 1. The paper's two definitions, 1 - sigma_2 and sigma_1 - sigma_2, then differ, and
// neither bounds the speed. This file computes 1 - sigma_2 here, too, which may be negative, and
// reports sigma_1 beside it. Metropolis weights give such graphs a meaningful gap.
//
// Pure functions; any thread. Deterministic.
#pragma once

#include <cstddef>
#include <optional>

#include "collectives/graph/mixing.h"
#include "runtime/status.h"

namespace dunlin::collective {

enum class SpectralMethod {
  kCirculant,  // all nodes have the same shifts: closed form by the Fourier transform of one row
  kDense,      // all eigenvalues of P^T P by Eigen
  kIterative,  // Lanczos on P^T P
};
const char* to_string(SpectralMethod method);

struct SpectralOptions {
  // Absent: circulant if the graph is; otherwise dense up to kDenseNodes nodes, iterative beyond.
  std::optional<SpectralMethod> method;
  // For the iterative method: products with P^T P per singular value, and when it has converged.
  int max_steps = 2000;
  double tolerance = 1e-8;
};
inline constexpr int kDenseNodes = 400;

struct Spectrum {
  double sigma_1 = 1;
  double sigma_2 = 0;  // 0 for a single node
  double gap = 1;      // 1 - sigma_2, without the loss of digits near sigma_2 = 1
  bool is_doubly_stochastic = true;
  SpectralMethod method = SpectralMethod::kCirculant;
  // Some singular value lies within this distance of sigma_2. Direct methods give the rounding
  // error, the iterative method gives the residual of the singular vector.
  double error_bound = 0;
  // False if the iterative method ran out of steps: error_bound is above the tolerance or above a
  // hundredth of the gap. sigma_2 is then too small, so `gap` is an upper bound.
  bool converged = true;
};

// kCirculant is an error if the graph is not circulant.
Result<Spectrum> spectrum(const MixingMatrix& matrix, const SpectralOptions& options = {});

// The number of reduces until the distance of the models from their average is at most `remaining`
// of what it was. This is the smallest t with sigma_2^t <= remaining, an upper bound. Absent if
// sigma_2 does not bound the speed (P is not doubly stochastic) or the graph does not mix (the gap
// is 0).
inline constexpr double kMixedTo = 1e-3;
std::optional<double> mixing_rounds(const Spectrum& spectrum, double remaining = kMixedTo);

}  // namespace dunlin::collective
