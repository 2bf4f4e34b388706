#include "apps/consensus/algorithm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace dunlin::consensus {
namespace {

class Dgd final : public Algorithm {
 public:
  Dgd(const Problem& problem, StepSize step)
      : Algorithm(problem, problem.dimension()), step_(step) {}

  void prepare() override {
    const double step = step_.at(iteration_);
    for (std::size_t i = 0; i < dimension(); ++i) message_[i] = x_[i] - step * gradient_[i];
  }

 private:
  void take_average() override { x_ = message_; }

  StepSize step_;
};

class ExactDiffusion final : public Algorithm {
 public:
  ExactDiffusion(const Problem& problem, double step)
      : Algorithm(problem, problem.dimension()),
        step_(step),
        before_(problem.dimension()),
        corrected_(problem.dimension()) {}

  void prepare() override {
    for (std::size_t i = 0; i < dimension(); ++i) {
      const double adapted = x_[i] - step_ * gradient_[i];
      corrected_[i] = adapted + x_[i] - before_[i];
      before_[i] = adapted;
    }
    message_ = corrected_;
  }

 private:
  void take_average() override {
    for (std::size_t i = 0; i < dimension(); ++i) x_[i] = (corrected_[i] + message_[i]) / 2;
  }

  double step_;
  Vector before_;  // x - step grad(x) of the iteration before; at first x
  Vector corrected_;
};

// In the message, the tracked gradient follows the solution; with push_diging, the weight of
// push-sum follows both.
class GradientTracking final : public Algorithm {
 public:
  GradientTracking(const Problem& problem, double step, bool is_push)
      : Algorithm(problem, 2 * problem.dimension() + (is_push ? 1 : 0)),
        step_(step),
        is_push_(is_push),
        unscaled_(problem.dimension()),
        tracked_(gradient_) {}

  void prepare() override {
    for (std::size_t i = 0; i < dimension(); ++i) {
      message_[i] = unscaled_[i] - step_ * tracked_[i];
      message_[dimension() + i] = tracked_[i];
    }
    if (is_push_) message_.back() = weight_;
  }

 private:
  void take_average() override {
    if (is_push_) weight_ = message_.back();
    for (std::size_t i = 0; i < dimension(); ++i) {
      unscaled_[i] = message_[i];
      x_[i] = unscaled_[i] / weight_;
    }
  }
  void take_gradient() override {
    for (std::size_t i = 0; i < dimension(); ++i) {
      tracked_[i] = message_[dimension() + i] + gradient_[i] - gradient_before_[i];
    }
  }

  double step_;
  bool is_push_;
  Vector unscaled_;    // u = v x
  double weight_ = 1;  // v
  Vector tracked_;     // y
};

}  // namespace

const char* to_string(Method method) {
  switch (method) {
    case Method::kDgd:
      return "dgd";
    case Method::kExactDiffusion:
      return "exact-diffusion";
    case Method::kGradientTracking:
      return "gradient-tracking";
    case Method::kPushDiging:
      return "push-diging";
  }
  return "?";
}

double StepSize::at(std::uint64_t iteration) const {
  return decay == 0 ? step : step / std::pow(static_cast<double>(iteration) + 1, decay);
}

Algorithm::Algorithm(const Problem& problem, std::size_t message_size)
    : x_(problem.dimension()),
      gradient_(problem.dimension()),
      gradient_before_(problem.dimension()),
      message_(message_size),
      problem_(problem) {
  problem_.gradient(x_, gradient_);
}

Status Algorithm::step(Neighbors& neighbors) {
  prepare();
  DUNLIN_TRY(neighbors.average(message_));
  finish();
  return Status::ok();
}

void Algorithm::finish() {
  take_average();
  gradient_.swap(gradient_before_);
  problem_.gradient(x_, gradient_);
  take_gradient();
  ++iteration_;
}

Result<std::unique_ptr<Algorithm>> make_algorithm(Method method, const Problem& problem,
                                                  StepSize step) {
  if (!(step.step > 0) || !std::isfinite(step.step) || !(step.decay >= 0)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("a step of {} with a decay of {}: the step has to be above 0, the "
                              "decay 0 or more",
                              step.step, step.decay));
  }
  if (method != Method::kDgd && step.decay != 0) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{} needs a constant step; only dgd's may shrink", to_string(method)));
  }
  std::unique_ptr<Algorithm> made;
  switch (method) {
    case Method::kDgd:
      made = std::make_unique<Dgd>(problem, step);
      break;
    case Method::kExactDiffusion:
      made = std::make_unique<ExactDiffusion>(problem, step.step);
      break;
    case Method::kGradientTracking:
    case Method::kPushDiging:
      made = std::make_unique<GradientTracking>(problem, step.step, method == Method::kPushDiging);
      break;
  }
  return made;
}

}  // namespace dunlin::consensus
