// WaitRecord: what the flight recorder is told of one blocking call. It lives on the stack of the
// call. Owner thread only.
//
// A wait shorter than kShortestWait is not recorded and reads no clock for it. A longer one reads
// the clock once more, when it ends.
#pragma once

#include "runtime/clock.h"
#include "runtime/rank.h"

namespace dunlin::flight {

class Recorder;

// Shorter waits hold up nobody, and a reading of the clock would be noticed among them.
inline constexpr Duration kShortestWait = std::chrono::microseconds(10);
// Where the awaited peers can only be told in a list that has to be allocated, this is done no
// sooner and no more often.
inline constexpr Duration kListPause = std::chrono::milliseconds(10);

class WaitRecord {
 public:
  // `recorder` may be null.
  WaitRecord(Recorder* recorder, TimePoint began)
      : recorder_(recorder), began_(began), next_list_(began + kListPause) {}
  WaitRecord(const WaitRecord&) = delete;
  WaitRecord& operator=(const WaitRecord&) = delete;

  // At time `now`, the call still waits for `peer`. Rank(): for nobody.
  void note(TimePoint now, Rank peer) {
    if (is_begun_ || now - began_ >= kShortestWait) go_on(now, peer);
  }
  // Whether it is time to call note() with the first peer of a list that has to be allocated.
  bool is_list_due(TimePoint now) {
    if (now < next_list_) return false;
    next_list_ = now + kListPause;
    return true;
  }
  void end(const Clock& clock) {
    if (is_begun_) [[unlikely]]
      finish(clock.now());
  }

 private:
  void go_on(TimePoint now, Rank peer);
  void finish(TimePoint now);

  Recorder* const recorder_;
  const TimePoint began_;
  TimePoint next_list_;
  Rank peer_;
  bool is_begun_ = false;
};

}  // namespace dunlin::flight
