#include "collectives/adaptive_timeout.h"

#include <algorithm>

namespace dunlin::collective {
namespace {

Duration median(std::vector<Duration>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void AdaptiveTimeout::record(Duration reduce_time) {
  if (window_.size() < kWindow) {
    window_.push_back(reduce_time);
  } else {
    window_[recorded_ % kWindow] = reduce_time;
  }
  ++recorded_;
  // Sorting 128 numbers takes a few microseconds: not after every reduce.
  if (recorded_ >= kMinimum && recorded_ % kMinimum == 0) update();
}

void AdaptiveTimeout::update() {
  std::vector<Duration> values = window_;
  const Duration middle = median(values);
  for (Duration& value : values) value = value > middle ? value - middle : middle - value;
  const Duration deviation = median(values);
  current_ =
      std::clamp(kMargin * (middle + kDeviations * deviation), floor_, std::max(floor_, ceiling_));
}

}  // namespace dunlin::collective
