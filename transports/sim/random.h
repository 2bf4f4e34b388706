// Random: the random numbers of a simulated network. They cost little and are the same on every
// platform (splitmix64; Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
// 2014).
#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/clock.h"

namespace dunlin::transport::sim {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t mixed = state_ += 0x9e37'79b9'7f4a'7c15;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58'476d'1ce4'e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d0'49bb'1331'11eb;
    return mixed ^ (mixed >> 31);
  }
  // Returns a number from 0 to 1, without 1.
  double fraction() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  // Returns a number from `low` to `high`, both included.
  int number(int low, int high) { return low + static_cast<int>(fraction() * (high - low + 1)); }
  bool chance(double probability) { return fraction() < probability; }
  // Returns a duration from 0 to `longest`, both included.
  Duration uniform(Duration longest) {
    return Duration(
        static_cast<std::int64_t>(fraction() * (static_cast<double>(longest.count()) + 1)));
  }
  Duration exponential(Duration mean) {
    return Duration(std::llround(-std::log(1 - fraction()) * static_cast<double>(mean.count())));
  }

 private:
  std::uint64_t state_;
};

}  // namespace dunlin::transport::sim
