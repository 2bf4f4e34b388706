// RecentTimes: median and MAD (median absolute deviation) of the last durations of something.
// Unlike a mean, neither the usual jitter nor a single outlier changes them noticeably; a lasting
// slowdown does. Owner thread only.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/clock.h"

namespace dunlin::collective {

class RecentTimes {
 public:
  RecentTimes() { window_.reserve(kWindow), sorted_.reserve(kWindow); }

  void record(Duration duration);
  std::size_t recorded() const { return recorded_; }  // number of record() calls so far
  // Returns median + deviations * MAD of the last kWindow durations, or zero before the first.
  // Sorting takes a few microseconds, so do not call it after every record().
  Duration typical(int deviations);

 private:
  static constexpr std::size_t kWindow = 128;

  std::vector<Duration> window_;  // a ring
  std::vector<Duration> sorted_;
  std::size_t recorded_ = 0;
};

}  // namespace dunlin::collective
