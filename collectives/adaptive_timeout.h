// AdaptiveTimeout: how long to wait for a reduce before the peers count as lost, from how long
// reduces have taken (the dynamic time-out of ASAP, section 5).
//
// The time-out is median + k * MAD (median absolute deviation) of the last reduces, times a margin,
// within [floor, ceiling]. Unlike a mean, neither the usual jitter nor a single outlier moves it; a
// worker that is slow all the time raises it. Before enough was seen, it is the ceiling.
#pragma once

#include <cstddef>

#include "collectives/recent_times.h"
#include "runtime/clock.h"

namespace dunlin::collective {

class AdaptiveTimeout {
 public:
  // `floor`: what an idle machine's scheduler, page cache or a checkpoint may cost at any time.
  AdaptiveTimeout(Duration floor, Duration ceiling)
      : floor_(floor), ceiling_(ceiling), current_(ceiling) {}

  void record(Duration reduce_time);
  Duration current() const { return current_; }

 private:
  static constexpr std::size_t kMinimum = 16;  // reduces before the time-out adapts
  static constexpr int kDeviations = 10;
  static constexpr int kMargin = 20;

  Duration floor_;
  Duration ceiling_;
  Duration current_;
  RecentTimes times_;
};

}  // namespace dunlin::collective
