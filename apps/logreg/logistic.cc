#include "apps/logreg/logistic.h"

#include <fmt/format.h>

#include "apps/svm/loss.h"

namespace dunlin::logreg {

using svm::Loss;

ProximalLogistic::ProximalLogistic(const Design& design, double cost, double weight)
    : design_(design),
      cost_(cost),
      weight_(weight),
      center_(design.columns()),
      offset_(design.columns()),
      margins_(design.rows()),
      curvature_(design.rows()) {}

double ProximalLogistic::value(std::span<const double> x) {
  for (std::size_t k = 0; k < offset_.size(); ++k) offset_[k] = x[k] - center_[k];
  double loss = 0;
  for (std::size_t row = 0; row < design_.rows(); ++row) {
    margins_[row] = design_.label(row) * design_.times(row, x);
    loss += svm::loss_at(Loss::kLog, margins_[row]);
  }
  return cost_ * loss + weight_ / 2 * dot(offset_, offset_);
}

void ProximalLogistic::gradient(std::span<double> result) {
  for (std::size_t k = 0; k < offset_.size(); ++k) result[k] = weight_ * offset_[k];
  for (std::size_t row = 0; row < design_.rows(); ++row) {
    const double pull = svm::pull_at(Loss::kLog, margins_[row]);
    curvature_[row] = cost_ * pull * (1 - pull);
    design_.add_row(row, -cost_ * pull * design_.label(row), result);
  }
}

// (C X'DX + weight) v, D being diagonal: one pass over the rows.
void ProximalLogistic::hessian_product(std::span<const double> v, std::span<double> result) {
  for (std::size_t k = 0; k < v.size(); ++k) result[k] = weight_ * v[k];
  for (std::size_t row = 0; row < design_.rows(); ++row) {
    design_.add_row(row, curvature_[row] * design_.times(row, v), result);
  }
}

double loss_of(const Design& design, double cost, std::span<const double> model) {
  double loss = 0;
  for (std::size_t row = 0; row < design.rows(); ++row) {
    loss += svm::loss_at(Loss::kLog, design.label(row) * design.times(row, model));
  }
  return cost * loss;
}

Result<Reference> solve_whole(const Design& design, double cost, double tolerance) {
  ProximalLogistic problem(design, cost, 1);
  Reference reference{Vector(design.columns()), {}};
  reference.report = tron(problem, reference.model, {.tolerance = tolerance});
  const TronReport& report = reference.report;
  if (report.end != TronEnd::kConverged && report.end != TronEnd::kRounding) {
    return Status(Code::kInternal,
                  fmt::format("the reference solution was not found: {} after {} iterations, with "
                              "the gradient at {:.1e} of its norm at 0",
                              to_string(report.end), report.iterations,
                              report.gradient_norm / report.first_gradient_norm));
  }
  return reference;
}

}  // namespace dunlin::logreg
