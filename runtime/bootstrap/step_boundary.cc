#include "runtime/bootstrap/step_boundary.h"

namespace dunlin::bootstrap {

StepBoundary::Outcome StepBoundary::before(std::uint64_t step,
                                           std::optional<std::uint64_t>& promise) {
  if (is_asked_ && !promise_) promise = promise_ = step;
  if (is_change_due() && step >= *boundary_) return Outcome::kChange;
  if (promise_ && !boundary_ && step >= *promise_) return Outcome::kWait;
  step_ = step;
  return Outcome::kGoOn;
}

std::optional<std::uint64_t> StepBoundary::ask() {
  is_asked_ = true;
  if (step_ && !promise_) promise_ = *step_ == kNever ? kNever : *step_ + 1;
  return promise_;
}

}  // namespace dunlin::bootstrap
