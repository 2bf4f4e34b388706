#include "apps/svm/redistribution.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace dunlin::svm {
namespace {

// No run has more exchanges. An integer of 64 bits can hold this.
constexpr double kMostExchanges = 9e18;

}  // namespace

// As many rows as a worker's planned exchanges count for a pass.
std::uint64_t exchanges_for(double examples, std::uint64_t total_rows, std::uint32_t ranks,
                            std::uint64_t sync_every) {
  const auto rows = static_cast<double>(total_rows);
  const double rows_of_rank = std::ceil(rows / ranks);
  const double exchanges = examples / rows * rows_of_rank / static_cast<double>(sync_every);
  return static_cast<std::uint64_t>(std::llround(std::min(exchanges, kMostExchanges)));
}

// The weights are scale * model; the bias, the last element, is not scaled.
void Redistribution::add(const Checkpoint& saved) {
  std::vector<float> model = saved.model;
  const auto scale = static_cast<float>(saved.state.scale);
  for (float& weight : std::span(model).first(model.size() - 1)) weight *= scale;
  model_.add(model);
  has_average_ = saved.averaged > 0;
  if (has_average_) average_.add(saved.average);
  eta0_ = saved.options.eta0;
}

Checkpoint Redistribution::state(const Checkpoint& fresh, std::uint64_t exchanges,
                                 std::uint64_t sync_every) const {
  Checkpoint state = fresh;
  state.iteration = exchanges;
  state.options.eta0 = eta0_;
  const std::uint64_t examples = exchanges * sync_every;
  state.state.t = examples * state.options.t_step;
  state.state.epoch = examples / state.shard_rows;
  state.state.position = examples % state.shard_rows;
  state.state.scale = 1;
  state.model = model_.mean();
  // Each exchange has added a model to the average.
  state.averaged = has_average_ ? std::max<std::uint64_t>(1, exchanges) : 0;
  state.average = has_average_ ? average_.mean() : std::vector<float>();
  return state;
}

}  // namespace dunlin::svm
