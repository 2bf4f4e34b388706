// AdaptiveTimeout: how long to wait for a reduce before its peers count as failed, derived from how
// long earlier reduces took (the dynamic timeout of ASAP, section 5).
//
// The timeout is (median + k * MAD) of the last reduces, times a margin, within [floor, ceiling].
// MAD is the median absolute deviation. Neither the usual jitter nor a single outlier changes the
// timeout noticeably, as it would with a mean; a worker that is always slow raises it. The timeout
// is the ceiling until enough reduces were recorded.
#pragma once

#include <cstddef>

#include "collectives/waiting/recent_times.h"
#include "runtime/clock.h"

namespace dunlin::collective {

class AdaptiveTimeout {
 public:
  // `floor`: the longest pause that a healthy peer may make, for example for its host's scheduler,
  // its page cache or a checkpoint.
  AdaptiveTimeout(Duration floor, Duration ceiling)
      : floor_(floor), ceiling_(ceiling), current_(ceiling) {}

  void record(Duration reduce_time);
  Duration current() const { return current_; }

 private:
  static constexpr std::size_t kMinimum = 16;  // reduces before the timeout adapts
  static constexpr int kDeviations = 10;
  static constexpr int kMargin = 20;

  Duration floor_;
  Duration ceiling_;
  Duration current_;
  RecentTimes times_;
};

}  // namespace dunlin::collective
