// RecentTimes: what the last durations of something were like, told by median and MAD (median
// absolute deviation). Unlike a mean, neither the usual jitter nor a single outlier moves it;
// something that is slow all the time does. Owner thread only.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/clock.h"

namespace dunlin::collective {

class RecentTimes {
 public:
  RecentTimes() { window_.reserve(kWindow), sorted_.reserve(kWindow); }

  void record(Duration duration);
  std::size_t recorded() const { return recorded_; }  // all that ever were
  // median + deviations * MAD of the last kWindow. Sorts them, which takes a few microseconds: not
  // for after every record(). Zero before the first.
  Duration typical(int deviations);

 private:
  static constexpr std::size_t kWindow = 128;

  std::vector<Duration> window_;  // a ring
  std::vector<Duration> sorted_;
  std::size_t recorded_ = 0;
};

}  // namespace dunlin::collective
