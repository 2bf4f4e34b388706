#include "collectives/waiting/recent_times.h"

#include <algorithm>

namespace dunlin::collective {
namespace {

Duration median(std::vector<Duration>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void RecentTimes::record(Duration duration) {
  if (window_.size() < kWindow) {
    window_.push_back(duration);
  } else {
    window_[recorded_ % kWindow] = duration;
  }
  ++recorded_;
}

Duration RecentTimes::typical(int deviations) {
  if (window_.empty()) return {};
  sorted_ = window_;
  const Duration middle = median(sorted_);
  for (Duration& value : sorted_) value = value > middle ? value - middle : middle - value;
  return middle + deviations * median(sorted_);
}

}  // namespace dunlin::collective
