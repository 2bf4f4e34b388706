// Courtesy: what a loop that polls without end does between its polls, so that whatever else wants
// its core gets it: a rank of another job, or of this one in another container of the host.
//
// It gives the core away every now and then. When that took so long that another thread must have
// run, it gives the core away after every poll for a while. Owner thread only.
#pragma once

#include <sched.h>

#include "runtime/clock.h"
#include "runtime/wait.h"

namespace dunlin::perf {

class Courtesy {
 public:
  explicit Courtesy(const Clock& clock) : clock_(clock) {}

  // To be called after the `polls`-th poll of a wait.
  void pause(long polls) {
    if (shares_core_ || polls % kPollsPerLook == 0) {
      look();
    } else {
      cpu_relax();
    }
  }
  bool shares_core() const { return shares_core_; }

 private:
  // Waits for a peer with a core of its own are shorter than this, mostly.
  static constexpr long kPollsPerLook = 1 << 10;
  // These have the values that Waiter uses (runtime/wait.cc).
  static constexpr Duration kLongYield = std::chrono::microseconds(10);
  static constexpr Duration kSharedTime = std::chrono::milliseconds(100);

  void look() {
    const TimePoint before = clock_.now();
    sched_yield();
    const TimePoint after = clock_.now();
    if (after - before >= kLongYield) {
      shares_core_ = true;
      shared_until_ = after + kSharedTime;
    } else if (after >= shared_until_) {
      shares_core_ = false;
    }
  }

  const Clock& clock_;
  bool shares_core_ = false;
  TimePoint shared_until_{};
};

}  // namespace dunlin::perf
