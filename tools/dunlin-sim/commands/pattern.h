// Pattern: the inputs of ranks to a collective and the expected outputs. They are small integers,
// whose sums are exact in floats, in any order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "collectives/schedule/problem.h"

namespace dunlin::simulate {

class Pattern {
 public:
  explicit Pattern(int ranks) {
    for (std::size_t i = 0; i < kPeriod; ++i) {
      double sum = 0;
      for (int rank = 0; rank < ranks; ++rank) sum += value(i + shift(rank));
      sums_[i] = static_cast<float>(sum);
    }
  }

  // Element `e` of the input of the rank in that step.
  float element(int rank, std::uint64_t step, std::size_t e) const {
    return value(place(step, e) + shift(rank));
  }
  // Element `e` of the output of the rank.
  float result(const collective::Problem& problem, int rank, std::uint64_t step,
               std::size_t e) const {
    using enum collective::Collective;
    const std::size_t n = problem.count;
    const std::size_t mine = static_cast<std::size_t>(rank) * n;
    switch (problem.collective) {
      case kBroadcast:
        return element(problem.root, step, e);
      case kReduceScatter:
        return sums_[place(step, mine + e)];
      case kAllGather:
        return element(static_cast<int>(e / n), step, e % n);
      case kAllToAll:
        return element(static_cast<int>(e / n), step, mine + e % n);
      default:
        return sums_[place(step, e)];
    }
  }

 private:
  static constexpr std::size_t kPeriod = 101;
  static std::size_t shift(int rank) { return static_cast<std::size_t>(rank) * 13; }
  static std::size_t place(std::uint64_t step, std::size_t e) {
    return (e * 7 + static_cast<std::size_t>(step) * 5) % kPeriod;
  }
  static float value(std::size_t i) { return static_cast<float>(i % kPeriod) - 50; }

  std::array<float, kPeriod> sums_{};
};

}  // namespace dunlin::simulate
