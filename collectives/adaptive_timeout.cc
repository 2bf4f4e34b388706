#include "collectives/adaptive_timeout.h"

#include <algorithm>

namespace dunlin::collective {

void AdaptiveTimeout::record(Duration reduce_time) {
  times_.record(reduce_time);
  // Not after every reduce, as it sorts.
  if (times_.recorded() % kMinimum != 0) return;
  current_ = std::clamp(kMargin * times_.typical(kDeviations), floor_, std::max(floor_, ceiling_));
}

}  // namespace dunlin::collective
