// CompletionWatch: notices a queue pair that has hung, which neither carries out what was posted to
// it nor breaks.
//
// A device has to do one of the two in bounded time. rdma_rxe does neither once in about fifty
// outages of a link, and other devices have lost requests, too. Nothing else would end the wait.
// Owner thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "runtime/clock.h"
#include "transports/verbs/constants.h"

namespace dunlin::transport::verbs {

class CompletionWatch {
 public:
  // Call one of these two at every probe: nothing is in progress, or something is. `returned` is a
  // number that changes when something has come back.
  void rest() { last_.reset(); }
  // Returns for how long nothing has come back. Time in which this process has not looked, for
  // example because it was stopped, counts as two probes at most.
  Duration look(std::uint64_t returned, TimePoint now) {
    const bool goes_on = last_ && returned == returned_;
    silence_ = goes_on ? silence_ + std::min<Duration>(now - *last_, 2 * kProbeInterval)
                       : Duration::zero();
    last_ = now;
    returned_ = returned;
    return silence_;
  }

 private:
  std::optional<TimePoint> last_;
  std::uint64_t returned_ = 0;
  Duration silence_{};
};

}  // namespace dunlin::transport::verbs
