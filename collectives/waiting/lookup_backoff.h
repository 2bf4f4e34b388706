// LookupBackoff: when to ask the bootstrap again for a peer that has not published its address yet.
// The first intervals are short, because peers mostly start together; later ones grow.
#pragma once

#include <algorithm>
#include <chrono>

#include "runtime/clock.h"

namespace dunlin::collective {

class LookupBackoff {
 public:
  bool is_due(TimePoint now) const { return now >= next_; }
  // Records a lookup that did not find the peer.
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
