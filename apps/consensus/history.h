// History: the distances of all ranks from the optimum and from one another, iteration by
// iteration.
//
// Every rank keeps its own solutions. Nothing is sent for this while an algorithm runs; the
// solutions are compared afterwards.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "apps/consensus/linear_algebra.h"
#include "apps/consensus/ranks.h"

namespace dunlin::consensus {

// Errors are relative to the norm of the optimum.
struct Moment {
  std::uint64_t iteration = 0;
  double error_max = 0;  // |x_i - x*| of the worst rank
  double error_rms = 0;  // over all ranks
  double consensus = 0;  // |x_i - the ranks' average|, rms over all ranks
  bool operator==(const Moment&) const = default;
};

class Trajectory {
 public:
  // Keeps a solution. Iterations ascend and are the same on all ranks.
  void record(std::uint64_t iteration, std::span<const double> solution);
  std::size_t moments() const { return iterations_.size(); }

  // Collective. NaN and infinity, from runs that diverged, stay or become infinity.
  Result<std::vector<Moment>> compare(std::span<const double> optimum, Ranks& ranks) const;

 private:
  std::vector<std::uint64_t> iterations_;
  Vector solutions_;  // one after the other
};

// The factor by which error_rms shrinks per iteration, from the straight line that fits its
// logarithm best. The line begins after a tenth of the iterations and ends before the error comes
// near its smallest value, which is due to rounding or a bias. Nothing if fewer than 5 moments are
// left or the error does not shrink.
std::optional<double> fitted_rate(const std::vector<Moment>& history);

}  // namespace dunlin::consensus
