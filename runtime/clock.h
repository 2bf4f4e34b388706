// The injected clock. A protocol reads the time only from the Clock that it was given. So the same
// code runs in real time and, stepped by a test or a simulator, in virtual time.
#pragma once

#include <chrono>

namespace dunlin {

using Duration = std::chrono::nanoseconds;
// A time of one Clock. Times of different clocks cannot be compared.
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

// Virtual time, which changes only by advance() and set(). Owner thread only.
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
