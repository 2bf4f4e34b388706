// The injected clock. Protocols never read the wall clock by themselves: they are handed a Clock,
// so that the same code runs in real time and, stepped by a test or a simulator, in virtual time.
#pragma once

#include <chrono>

namespace dunlin {

using Duration = std::chrono::nanoseconds;
// A point on the clock that was handed in; points of different clocks don't compare.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

// Monotonic real time. Any thread.
class SteadyClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

// Virtual time: stands still until it is advanced. Owner thread only.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance(Duration by) { now_ += by; }
  void set(TimePoint at) { now_ = at; }

 private:
  TimePoint now_{};
};

inline double to_seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace dunlin
