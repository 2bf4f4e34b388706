#include "apps/svm/learner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "apps/svm/evaluate.h"
#include "runtime/random.h"

namespace dunlin::svm {
namespace {

// Bottou's program moves the bias at a hundredth of the rate of the weights. Every row has the bias
// as a feature of value 1, whereas a single weight occurs in few rows, with small values.
constexpr double kBiasRate = 0.01;

// The scale is folded into the weights before they have grown to more than 10^5 times their true
// size. This is far from the limits of a float, and rare enough to cost nothing.
constexpr double kSmallestScale = 1e-5;

Status check(std::span<const float> model, const Dataset& data, const LearnerOptions& options) {
  const auto invalid = [](std::string text) {
    return Status(Code::kInvalidArgument, std::move(text));
  };
  if (data.rows() == 0) return invalid("there are no rows to train on");
  if (data.rows() > UINT32_MAX) return invalid("a shard has at most 2^32 - 1 rows");
  if (model.size() != std::size_t{data.features} + 1) {
    return invalid(fmt::format("the model has {} elements; {} features and a bias need {}",
                               model.size(), data.features, std::size_t{data.features} + 1));
  }
  if (!(options.lambda > 0 && std::isfinite(options.lambda))) {
    return invalid(fmt::format("lambda is {}: it has to be above 0", options.lambda));
  }
  if (!(options.eta0 > 0 && options.eta0 * options.lambda < 1)) {
    return invalid(fmt::format("eta0 is {}: it has to be above 0 and below 1/lambda = {}",
                               options.eta0, 1 / options.lambda));
  }
  if (options.t_step == 0) return invalid("t_step is 0: the rate would never fall");
  return Status::ok();
}

}  // namespace

Result<Learner> Learner::create(std::span<float> model, const Dataset& data,
                                const LearnerOptions& options) {
  DUNLIN_TRY(check(model, data, options));
  return Learner(model, data, options);
}

Learner::Learner(std::span<float> model, const Dataset& data, const LearnerOptions& options)
    : weights_(model.first(data.features)),
      bias_(model[data.features]),
      data_(data),
      options_(options),
      order_(data.rows()) {
  shuffle();
}

void Learner::shuffle() {
  std::iota(order_.begin(), order_.end(), 0U);
  Random random(options_.seed, state_.epoch, options_.shard);
  for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.below(i)]);
}

double Learner::eta() const {
  return options_.eta0 / (1 + options_.lambda * options_.eta0 * static_cast<double>(state_.t));
}

void Learner::train(std::uint64_t examples) {
  for (; examples > 0; --examples) {
    step(order_[state_.position], eta());
    state_.t += options_.t_step;
    if (++state_.position == order_.size()) {
      state_.position = 0;
      ++state_.epoch;
      shuffle();
    }
  }
}

void Learner::step(std::size_t row_number, double eta) {
  const Row row = data_.row(row_number);
  const double margin = row.label * (state_.scale * dot(weights_.data(), row) + bias_);
  const double pull = pull_at(options_.loss, margin) * row.label;
  state_.scale *= 1 - eta * options_.lambda;
  if (state_.scale < kSmallestScale) materialize();
  if (pull == 0) return;
  const auto factor = static_cast<float>(eta * pull / state_.scale);
  for (std::size_t i = 0; i < row.indices.size(); ++i) {
    weights_[row.indices[i]] += factor * row.values[i];
  }
  if (options_.has_bias) bias_ += static_cast<float>(eta * kBiasRate * pull);
}

void Learner::materialize() {
  if (state_.scale == 1) return;
  const auto scale = static_cast<float>(state_.scale);
  for (float& weight : weights_) weight *= scale;
  state_.scale = 1;
}

Status Learner::restore(const LearnerState& state) {
  if (state.position >= order_.size()) {
    return {Code::kInvalidArgument,
            fmt::format("row {} of a pass over {} rows", state.position, order_.size())};
  }
  if (!(state.scale >= kSmallestScale && state.scale <= 1)) {
    return {Code::kInvalidArgument, fmt::format("a weight scale of {}", state.scale)};
  }
  state_ = state;
  shuffle();
  return Status::ok();
}

namespace {

double cost_of_rate(const Dataset& data, LearnerOptions options, std::size_t rows, double eta) {
  std::vector<float> model(std::size_t{data.features} + 1);
  options.eta0 = eta;
  Learner learner = Learner::create(model, data, options).value();
  for (std::size_t i = 0; i < rows; ++i) learner.step(i, eta);
  learner.materialize();
  return evaluate(model, data, options.loss, options.lambda, rows).objective();
}

}  // namespace

Result<double> find_eta0(const Dataset& data, LearnerOptions options, std::size_t sample_rows) {
  const double largest = 0.5 / options.lambda;
  double best = std::min(1.0, largest);
  options.eta0 = best;
  const std::vector<float> model(std::size_t{data.features} + 1);
  DUNLIN_TRY(check(model, data, options));
  const std::size_t rows = std::min(sample_rows, data.rows());
  // A rate with which the model runs away has an infinite cost.
  const auto cost_of = [&](double eta) {
    const double cost = cost_of_rate(data, options, rows, eta);
    return std::isfinite(cost) ? cost : std::numeric_limits<double>::infinity();
  };

  double best_cost = cost_of(best);
  // First upwards, and downwards if the first step up did not help. A rate below 2^-40 changes
  // nothing.
  for (const double factor : {2.0, 0.5}) {
    const double start = best;
    for (double eta = best * factor; eta <= largest && eta >= 0x1p-40; eta *= factor) {
      const double cost = cost_of(eta);
      if (cost < best_cost) {
        best_cost = cost;
        best = eta;
      } else if (factor > 1 || std::isfinite(best_cost)) {
        break;
      }
    }
    if (best != start) break;
  }
  return best;
}

}  // namespace dunlin::svm
