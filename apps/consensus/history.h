// History: how far all ranks were from the optimum, and from one another, iteration by iteration.
//
// Every rank keeps its own solutions and nothing is sent while an algorithm runs; afterwards they
// are compared all at once.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "apps/consensus/linear_algebra.h"
#include "apps/consensus/ranks.h"

namespace dunlin::consensus {

// Errors are relative to the optimum's norm.
struct Moment {
  std::uint64_t iteration = 0;
  double error_max = 0;  // |x_i - x*| of the worst rank
  double error_rms = 0;  // over all ranks
  double consensus = 0;  // |x_i - the ranks' average|, rms over all ranks
  bool operator==(const Moment&) const = default;
};

class Trajectory {
 public:
  // Keeps a solution; iterations ascend, and are the same on all ranks.
  void record(std::uint64_t iteration, std::span<const double> solution);
  std::size_t moments() const { return iterations_.size(); }

  // Collective. NaN and infinity, from runs that diverged, stay what they are or become infinity.
  Result<std::vector<Moment>> compare(std::span<const double> optimum, Ranks& ranks) const;

 private:
  std::vector<std::uint64_t> iterations_;
  Vector solutions_;  // one after the other
};

// The factor by which error_rms shrinks per iteration: of the straight line that fits its logarithm
// best, from a tenth of the way on and before it gets near its smallest value (which is rounding,
// or a bias). Absent where that leaves fewer than 5 moments or the error doesn't shrink.
std::optional<double> fitted_rate(const std::vector<Moment>& history);

}  // namespace dunlin::consensus
