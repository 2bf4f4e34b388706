// Slowdown: makes a worker slow on purpose, as the experiments on heterogeneity need it: after a
// computation it sleeps `factor` times as long as a usual one took (Ripples / Prague, section 7.4).
// Owner thread only.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/clock.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::training {

// "3:5": worker 3 sleeps five computations after each of its own. "random:5": in each iteration of
// each worker, with probability 1 / workers, drawn from the seed. Factors of 0 to a million.
struct SlowdownRule {
  bool is_random = false;
  Rank rank;
  double factor = 0;
};
Result<SlowdownRule> parse_slowdown(std::string_view text);

class Slowdown {
 public:
  Slowdown(std::vector<SlowdownRule> rules, Rank rank, int workers, std::uint64_t seed);
  // How long to sleep after an iteration whose computation took `computed`. The same sequence of
  // factors for a seed, whatever the method and the times are.
  Duration after(std::uint64_t iteration, Duration computed) const;

 private:
  std::vector<SlowdownRule> rules_;
  Rank rank_;
  int workers_;
  std::uint64_t seed_;
};

}  // namespace dunlin::training
