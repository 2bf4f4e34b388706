// Random numbers that are the same on every host and with every standard library. A seed and up to
// two numbers (such as row and epoch) select one of many independent sequences. One thread.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace dunlin {

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t first = 0, std::uint64_t second = 0) {
    for (const std::uint64_t name : {seed, first, second}) state_ = mixed(state_ + name + kStep);
  }

  std::uint64_t bits() { return mixed(state_ += kStep); }
  // Returns a number in [0, 1), in steps of 2^-53.
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  // Returns a number in [0, bound); `bound` > 0. The bias of bound / 2^64 is negligible.
  std::uint64_t below(std::uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((Wide{bits()} * bound) >> 64);
  }
  // Mean 0, variance 1: the sum of twelve uniform numbers, less 6. It is within [-6, 6].
  double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum;
  }

 private:
  static constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15;
  static constexpr std::uint64_t mixed(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

  std::uint64_t state_ = 0;
};

}  // namespace dunlin
