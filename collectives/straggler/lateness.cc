#include "collectives/straggler/lateness.h"

#include <fmt/format.h>

#include <algorithm>

namespace dunlin::collective {
namespace {

Duration scaled(double factor, Duration duration) {
  return Duration(static_cast<Duration::rep>(factor * static_cast<double>(duration.count())));
}

}  // namespace

Status Lateness::check(const LatenessOptions& options) {
  if (options.mode == LatenessMode::kNever) return Status::ok();
  if (!(options.alpha > 1)) {
    return {Code::kInvalidArgument,
            fmt::format("alpha is {}; a step is late beyond alpha times the usual, above 1",
                        options.alpha)};
  }
  if (options.mode == LatenessMode::kFixed && options.step <= Duration::zero())
    return {Code::kInvalidArgument, "a fixed threshold needs the usual time of a step"};
  return Status::ok();
}

Lateness::Lateness(const LatenessOptions& options) : options_(options) {
  if (options.mode != LatenessMode::kFixed) return;
  longest_step_ = scaled(options.alpha, options.step);
  timeout_ = *longest_step_ + options.transfer;
}

void Lateness::record_step(Duration step) {
  if (options_.mode != LatenessMode::kAdaptive) return;
  steps_.record(step);
  if (steps_.recorded() % kMinimum == 0) update();
}

void Lateness::record_gap(Duration gap) {
  if (options_.mode != LatenessMode::kAdaptive) return;
  gaps_.record(gap);
  if (gaps_.recorded() % kMinimum == 0) update();
}

void Lateness::update() {
  const Duration step = steps_.typical(kDeviations);
  if (steps_.recorded() >= kMinimum)
    longest_step_ = std::max(options_.floor, scaled(options_.alpha, step));
  if (steps_.recorded() >= kMinimum && gaps_.recorded() >= kMinimum) {
    timeout_ =
        std::max(options_.floor, gaps_.typical(kDeviations) + scaled(options_.alpha - 1, step));
  }
}

}  // namespace dunlin::collective
