// The functions that logistic regression minimizes, for TRON:
//
//  C sum_i log(1 + exp(-y_i x_i'w))  +  weight / 2 |w - center|^2
//
// With weight 1 and center 0 this is the whole problem, as stated by LIBLINEAR's -s 0 (a bias is
// regularized like any weight). With weight rho and center z - u it is a rank's part of the problem
// in ADMM.
#pragma once

#include <span>

#include "apps/logreg/design.h"
#include "apps/logreg/tron.h"
#include "apps/logreg/vectors.h"
#include "runtime/status.h"

namespace dunlin::logreg {

// Owner thread only; the design is only read.
class ProximalLogistic final : public SmoothFunction {
 public:
  // The center is 0 at first; it has design.columns() elements.
  ProximalLogistic(const Design& design, double cost, double weight);

  // Changes the function. Afterwards it has to be evaluated again, beginning with value().
  void set_weight(double weight) { weight_ = weight; }
  std::span<double> center() { return center_; }

  std::size_t dimension() const override { return center_.size(); }
  double value(std::span<const double> x) override;
  void gradient(std::span<double> result) override;
  void hessian_product(std::span<const double> v, std::span<double> result) override;

 private:
  const Design& design_;
  double cost_;
  double weight_;
  Vector center_;
  Vector offset_;     // w - center
  Vector margins_;    // by row: y x'w
  Vector curvature_;  // by row: C s (1 - s), s being the logistic function of the margin
};

// Returns C sum_i log(1 + exp(-y_i x_i'w)). The values of ranks with different rows add up.
double loss_of(const Design& design, double cost, std::span<const double> model);

// The minimum of the whole problem; the gradient's norm is `tolerance` times its norm at 0.
struct Reference {
  Vector model;
  TronReport report;
};
// kInternal if the solver gives up earlier for a reason other than rounding.
Result<Reference> solve_whole(const Design& design, double cost, double tolerance);

}  // namespace dunlin::logreg
