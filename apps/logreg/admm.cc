#include "apps/logreg/admm.h"

#include <algorithm>
#include <cmath>

namespace dunlin::logreg {
namespace {

// Boyd et al., 3.4.1: mu and tau.
constexpr double kApart = 10;
constexpr double kFactor = 2;
// Iterations after which rho may change.
constexpr int kAdaptations = 100;

double square_of_distance(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t k = 0; k < a.size(); ++k) sum += (a[k] - b[k]) * (a[k] - b[k]);
  return sum;
}

}  // namespace

ConsensusAdmm::ConsensusAdmm(const Design& design, const AdmmOptions& options)
    : design_(design),
      options_(options),
      local_(design, options.cost, options.rho),
      adaptations_left_(options.is_adaptive ? kAdaptations : 0),
      x_(design.columns()),
      u_(design.columns()),
      z_(design.columns()),
      z_before_(design.columns()) {}

TronReport ConsensusAdmm::update_x(std::span<double> message) {
  local_.set_weight(options_.rho);
  const std::span<double> center = local_.center();
  for (std::size_t k = 0; k < center.size(); ++k) center[k] = z_[k] - u_[k];
  TronReport report = tron(local_, x_, {.tolerance = options_.tron_tolerance});
  for (std::size_t k = 0; k < x_.size(); ++k) message[k] = x_[k] + u_[k];
  return report;
}

void ConsensusAdmm::update_z(std::span<const double> sum) {
  z_.swap(z_before_);
  const double factor = options_.rho / (1 + options_.ranks * options_.rho);
  for (std::size_t k = 0; k < z_.size(); ++k) {
    z_[k] = factor * sum[k];
    u_[k] += x_[k] - z_[k];
  }
}

ConsensusAdmm::Addends ConsensusAdmm::addends() const {
  Addends addends{};
  addends[kPrimal] = square_of_distance(x_, z_);
  addends[kSolution] = dot(x_, x_);
  addends[kDual] = dot(u_, u_);
  addends[kLoss] = loss_of(design_, options_.cost, z_);
  return addends;
}

ConsensusAdmm::Residuals ConsensusAdmm::residuals(const Addends& sums, double absolute,
                                                  double relative) const {
  const double root_of_ranks = std::sqrt(options_.ranks);
  const double by_element = root_of_ranks * std::sqrt(static_cast<double>(z_.size())) * absolute;
  Residuals result;
  result.primal = std::sqrt(sums[kPrimal]);
  result.dual = options_.rho * root_of_ranks * std::sqrt(square_of_distance(z_, z_before_));
  const double largest = std::max(std::sqrt(sums[kSolution]), root_of_ranks * norm(z_));
  result.primal_bound = by_element + relative * largest;
  result.dual_bound = by_element + relative * options_.rho * std::sqrt(sums[kDual]);
  return result;
}

void ConsensusAdmm::adapt(const Residuals& residuals) {
  if (adaptations_left_ == 0) return;
  --adaptations_left_;
  double factor = 1;
  if (residuals.primal > kApart * residuals.dual) factor = kFactor;
  if (residuals.dual > kApart * residuals.primal) factor = 1 / kFactor;
  options_.rho *= factor;
  // lambda = rho u keeps its value.
  for (double& u : u_) u /= factor;
}

}  // namespace dunlin::logreg
