#include "apps/logreg/tron.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "apps/logreg/vectors.h"

namespace dunlin::logreg {
namespace {

// The constants of the paper (section 2.1 and 3). A step is taken if the function falls by more
// than kTaken of the prediction. The radius shrinks below kPoor and grows from kGood on.
constexpr double kTaken = 1e-4;
constexpr double kPoor = 0.25;
constexpr double kGood = 0.75;
// The factors by which the radius may change: sigma 1 to 3.
constexpr double kShrinkMost = 0.25;
constexpr double kShrinkLeast = 0.5;
constexpr double kGrowMost = 4;
// Conjugate gradients end when the residual is this share of the gradient (xi), or the square root
// of how far the gradient has come down, whichever is less. The last iterations then converge
// faster than linearly.
constexpr double kResidual = 0.1;
// The function is a sum over all rows. Differences below this share of it are rounding.
constexpr double kRoundingShare = 64 * std::numeric_limits<double>::epsilon();

struct Step {
  Vector s;
  double model_change = 0;  // g's + s'Hs / 2: not above 0
  double slope = 0;         // g's
  double length = 0;        // |s|
};

class Tron {
 public:
  Tron(SmoothFunction& function, std::span<double> x, const TronOptions& options)
      : function_(function),
        x_(x),
        options_(options),
        gradient_(x.size()),
        residual_(x.size()),
        direction_(x.size()),
        product_(x.size()),
        candidate_(x.size()),
        next_gradient_(x.size()) {
    step_.s.resize(x.size());
  }

  TronReport run();

 private:
  TronEnd iterate();
  void find_step();
  double distance_to_border() const;
  void update_radius(double change);
  void take(double value);
  bool improves_gradient(double value);

  SmoothFunction& function_;
  std::span<double> x_;
  const TronOptions& options_;
  TronReport report_;
  double radius_ = 0;
  Vector gradient_;
  Step step_;
  Vector residual_;   // -(g + H s)
  Vector direction_;  // of conjugate gradients
  Vector product_;    // H times direction_
  Vector candidate_;
  Vector next_gradient_;
};

// The distance to the border of the ball along the direction: the t >= 0 with |s + t d| = radius.
double Tron::distance_to_border() const {
  const double sd = dot(step_.s, direction_);
  const double dd = dot(direction_, direction_);
  const double room = std::max(0.0, radius_ * radius_ - dot(step_.s, step_.s));
  const double root = std::sqrt(sd * sd + dd * room);
  // There are two equal forms of the root. For each sign of sd, this chooses the one that subtracts
  // nothing.
  return sd >= 0 ? (root + sd > 0 ? room / (root + sd) : 0) : (root - sd) / dd;
}

// Steihaug's conjugate gradients (the paper's algorithm 2). They start at 0 and end when the
// residual is small, or on the border when the path leaves the ball.
void Tron::find_step() {
  std::ranges::fill(step_.s, 0);
  std::ranges::transform(gradient_, residual_.begin(), [](double g) { return -g; });
  direction_ = residual_;
  double residual_square = dot(residual_, residual_);
  const double progress = report_.gradient_norm / report_.first_gradient_norm;
  const double enough = std::min(kResidual, std::sqrt(progress)) * report_.gradient_norm;
  const std::size_t most = std::max<std::size_t>(function_.dimension(), 5);
  for (std::size_t i = 0; i < most && std::sqrt(residual_square) > enough; ++i) {
    function_.hessian_product(direction_, product_);
    ++report_.products;
    const double curvature = dot(direction_, product_);
    const double along = residual_square / curvature;
    const double border = distance_to_border();
    // No curvature: the model falls for ever in this direction.
    const bool is_leaving = !(curvature > 0) || along >= border;
    const double by = is_leaving ? border : along;
    add_scaled(step_.s, by, direction_);
    add_scaled(residual_, -by, product_);
    if (is_leaving) break;
    const double next_square = dot(residual_, residual_);
    const double beta = next_square / residual_square;
    for (std::size_t k = 0; k < direction_.size(); ++k) {
      direction_[k] = residual_[k] + beta * direction_[k];
    }
    residual_square = next_square;
  }
  step_.slope = dot(gradient_, step_.s);
  // H s = -(g + residual).
  step_.model_change = 0.5 * (step_.slope - dot(step_.s, residual_));
  step_.length = norm(step_.s);
}

// The paper's rule (its equation 8, with the interpolation of Lin and More). `change` is that of
// the function. The parabola through the value and slope here and the value there has its minimum
// at `best` times the step.
void Tron::update_radius(double change) {
  if (!std::isfinite(change)) {
    radius_ = kShrinkMost * step_.length;
    return;
  }
  const double bend = change - step_.slope;
  const double best = bend > 0 ? std::max(kShrinkMost, -0.5 * step_.slope / bend) : kGrowMost;
  const double wanted = best * step_.length;
  const double quality = change / step_.model_change;
  if (quality < kTaken) {
    radius_ = std::min(wanted, kShrinkLeast * radius_);
  } else if (quality < kPoor) {
    radius_ = std::max(kShrinkMost * radius_, std::min(wanted, kShrinkLeast * radius_));
  } else if (quality < kGood) {
    radius_ = std::max(kShrinkMost * radius_, std::min(wanted, kGrowMost * radius_));
  } else {
    radius_ = std::max(radius_, std::min(wanted, kGrowMost * radius_));
  }
}

void Tron::take(double value) {
  std::ranges::copy(candidate_, x_.begin());
  gradient_.swap(next_gradient_);
  report_.value = value;
  report_.gradient_norm = norm(gradient_);
}

// When rounding hides whether the function falls, its gradient still tells.
bool Tron::improves_gradient(double value) {
  function_.gradient(next_gradient_);
  if (!(norm(next_gradient_) < report_.gradient_norm)) return false;
  take(value);
  return true;
}

TronEnd Tron::iterate() {
  const double target = options_.tolerance * report_.first_gradient_norm;
  while (true) {
    if (!std::isfinite(report_.value) || !std::isfinite(report_.gradient_norm)) {
      return TronEnd::kNotFinite;
    }
    if (report_.gradient_norm <= target) return TronEnd::kConverged;
    if (report_.iterations == options_.most_iterations) return TronEnd::kIterations;
    ++report_.iterations;
    find_step();
    if (!std::isfinite(step_.length)) return TronEnd::kNotFinite;
    std::ranges::transform(x_, step_.s, candidate_.begin(), std::plus());
    const double value = function_.value(candidate_);
    const double rounding = kRoundingShare * std::abs(report_.value);
    if (-step_.model_change <= rounding && std::abs(value - report_.value) <= 2 * rounding) {
      if (!improves_gradient(value)) return TronEnd::kRounding;
      // The model may still be good: the first radius may be far too small.
      radius_ = std::max(radius_, kGrowMost * step_.length);
      continue;
    }
    const double change = value - report_.value;
    // The first radius is a guess; the length of the first step is a better one.
    if (report_.iterations == 1) radius_ = std::min(radius_, step_.length);
    update_radius(change);
    if (change <= kTaken * step_.model_change) {
      function_.gradient(next_gradient_);
      take(value);
    } else if (radius_ <= std::numeric_limits<double>::min()) {
      return TronEnd::kRounding;
    }
  }
}

TronReport Tron::run() {
  report_.value = function_.value(x_);
  function_.gradient(gradient_);
  report_.gradient_norm = report_.first_gradient_norm = radius_ = norm(gradient_);
  report_.end = iterate();
  return report_;
}

}  // namespace

const char* to_string(TronEnd end) {
  switch (end) {
    case TronEnd::kConverged:
      return "converged";
    case TronEnd::kRounding:
      return "rounding";
    case TronEnd::kIterations:
      return "iterations";
    case TronEnd::kNotFinite:
      return "not finite";
  }
  return "unknown";
}

TronReport tron(SmoothFunction& function, std::span<double> x, const TronOptions& options) {
  return Tron(function, x, options).run();
}

}  // namespace dunlin::logreg
