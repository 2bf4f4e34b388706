// LookPacing: when to ask the bootstrap again for a peer that was not there yet: soon at first, as
// peers mostly meet at once, then at growing intervals.
#pragma once

#include <algorithm>
#include <chrono>

#include "runtime/clock.h"

namespace dunlin::collective {

class LookPacing {
 public:
  bool is_due(TimePoint now) const { return now >= next_; }
  // The peer was looked for in vain.
  void put_off(TimePoint now) {
    pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
    next_ = now + pause_;
  }

 private:
  static constexpr Duration kFirstPause = std::chrono::microseconds(200);
  static constexpr Duration kLongestPause = std::chrono::milliseconds(50);

  TimePoint next_{};
  Duration pause_{};
};

}  // namespace dunlin::collective
