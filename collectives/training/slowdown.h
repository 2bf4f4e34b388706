// Slowdown: makes a worker slow on purpose, for experiments on heterogeneity. After a computation
// the worker sleeps `factor` times as long as the computation usually takes (Ripples / Prague,
// section 7.4). Owner thread only.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/clock.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::training {

// "3:5": after each computation, worker 3 sleeps for the time of five. "random:5": every worker
// does so in each iteration with probability 1 / workers, drawn from the seed. Factors are 0 to
// 1e6.
struct SlowdownRule {
  bool is_random = false;
  Rank rank;
  double factor = 0;
};
Result<SlowdownRule> parse_slowdown(std::string_view text);

class Slowdown {
 public:
  Slowdown(std::vector<SlowdownRule> rules, Rank rank, int workers, std::uint64_t seed);
  // How long to sleep after an iteration whose computation took `computed`. A seed always gives the
  // same sequence of factors, whatever the method and the times are.
  Duration after(std::uint64_t iteration, Duration computed) const;

 private:
  std::vector<SlowdownRule> rules_;
  Rank rank_;
  int workers_;
  std::uint64_t seed_;
};

}  // namespace dunlin::training
