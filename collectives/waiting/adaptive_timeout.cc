#include "collectives/waiting/adaptive_timeout.h"

#include <algorithm>

namespace dunlin::collective {

void AdaptiveTimeout::record(Duration reduce_time) {
  times_.record(reduce_time);
  // Computing the typical time sorts, so do it only once per kMinimum reduces.
  if (times_.recorded() % kMinimum != 0) return;
  current_ = std::clamp(kMargin * times_.typical(kDeviations), floor_, std::max(floor_, ceiling_));
}

}  // namespace dunlin::collective
