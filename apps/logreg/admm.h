// ConsensusAdmm: one rank's part of L2-regularized logistic regression by consensus ADMM
// (2D-TGA-ADMM, section 4, equations 6a to 6c, with the scaled dual variable u = lambda / rho):
//
//   x <- argmin f(x) + rho/2 |x - z + u|^2       f: the loss of this rank's rows; by TRON     (6a)
//   sum over all ranks of x + u                  the caller's all-reduce                 (7)
//   z <- rho / (1 + N rho) times the sum         for 1/2 |z|^2 + N rho/2 |z - mean(x + u)|^2  (6b)
//   u <- u + x - z                                                                            (6c)
//
// Only the z-update contains the regularizer (Boyd et al., "Distributed Optimization and
// Statistical Learning via ADMM", section 8.2). The class does not communicate: a rank calls
// update_x(), runs an all-reduce, and calls update_z(), in turns. z is bitwise the same on all
// ranks if the sum is. Owner thread only.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "apps/logreg/design.h"
#include "apps/logreg/logistic.h"
#include "apps/logreg/vectors.h"

namespace dunlin::logreg {

struct AdmmOptions {
  int ranks = 1;
  double cost = 1;  // LIBLINEAR's C
  double rho = 1;
  // Doubles or halves rho when one residual is more than ten times the other (Boyd, 3.4.1), in the
  // first hundred iterations only: convergence is proved for a rho that stays constant in the end.
  bool is_adaptive = false;
  // An x-update ends when its gradient has fallen to this share. It starts at the last x, which is
  // the nearer to the result the further ADMM is. A smaller tolerance saves no iterations.
  double tron_tolerance = 0.1;
};

class ConsensusAdmm {
 public:
  // The values of a rank whose sums over all ranks judge the iteration.
  enum Addend { kPrimal, kSolution, kDual, kLoss, kAddends };  // |x - z|^2, |x|^2, |u|^2, loss at z
  using Addends = std::array<double, kAddends>;

  // `design` has to outlive the object. It may have no rows.
  ConsensusAdmm(const Design& design, const AdmmOptions& options);

  // Equation (6a), starting at the last x. `message`, of design.columns() elements, becomes x + u.
  TronReport update_x(std::span<double> message);
  // Equations (6b) and (6c). `sum` is the sum of the messages of all ranks.
  void update_z(std::span<const double> sum);
  Addends addends() const;

  // Norms over all ranks (Boyd, 7.1 and 3.3), and the bounds that they are compared with.
  struct Residuals {
    double primal = 0;  // sqrt(sum |x_i - z|^2)
    double dual = 0;    // rho sqrt(N) |z - z before|
    double primal_bound = 0;
    double dual_bound = 0;

    bool are_small() const { return primal <= primal_bound && dual <= dual_bound; }
  };
  // `sums` are those of the addends of all ranks. The tolerances are per element and relative to
  // the iterates.
  Residuals residuals(const Addends& sums, double absolute, double relative) const;
  // The objective of the whole problem at z: 1/2 |z|^2 + the loss of all ranks.
  double objective(const Addends& sums) const { return 0.5 * dot(z_, z_) + sums[kLoss]; }
  // Adapts rho if is_adaptive is set. The result is the same on all ranks, as the residuals are.
  void adapt(const Residuals& residuals);

  double rho() const { return options_.rho; }
  std::span<const double> z() const { return z_; }

 private:
  const Design& design_;
  AdmmOptions options_;
  ProximalLogistic local_;
  int adaptations_left_;
  Vector x_;
  Vector u_;
  Vector z_;
  Vector z_before_;
};

}  // namespace dunlin::logreg
