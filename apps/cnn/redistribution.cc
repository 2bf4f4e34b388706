#include "apps/cnn/redistribution.h"

#include <algorithm>
#include <cmath>

namespace dunlin::cnn {
namespace {

// No run has more steps. An integer of 64 bits can hold this.
constexpr double kMostSteps = 9e18;

}  // namespace

std::uint64_t iteration_after(double epochs, std::uint64_t per_epoch, std::uint64_t step) {
  const double steps = epochs * static_cast<double>(per_epoch) / static_cast<double>(step);
  return step * static_cast<std::uint64_t>(std::llround(std::min(steps, kMostSteps)));
}

void Redistribution::add(const Checkpoint& saved) {
  settings_ = saved.settings;
  loss_ += saved.loss;
  accuracy_ += saved.accuracy;
  ++count_;
  parameters_.add(saved.parameters);
  velocity_.add(saved.velocity);
  statistics_.add(saved.statistics);
}

Checkpoint Redistribution::state(std::uint32_t rank, std::uint32_t ranks, std::uint64_t run,
                                 std::uint64_t iteration) const {
  Checkpoint state;
  state.rank = rank;
  state.ranks = ranks;
  state.run = run;
  state.iteration = iteration;
  state.settings = settings_;
  state.loss = loss_ / count_;
  state.accuracy = accuracy_ / count_;
  state.batches = iteration;
  state.parameters = parameters_.mean();
  state.velocity = velocity_.mean();
  state.statistics = statistics_.mean();
  return state;
}

}  // namespace dunlin::cnn
