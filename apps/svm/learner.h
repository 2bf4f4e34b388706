// Stochastic gradient descent for linear SVMs and logistic regression after L. Bottou, "Large-scale
// machine learning with stochastic gradient descent" (COMPSTAT 2010) and his program svmsgd:
// minimises lambda/2 |w|^2 + mean loss, example by example, with rate eta0 / (1 + lambda eta0 t).
//
// The model lives in the caller's memory, since it is exchanged with other ranks in place. While
// training, the weights are `scale` times what stands there, so that the shrinking of all weights
// costs one multiplication and a step only touches the row's own features. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "apps/svm/dataset.h"
#include "apps/svm/loss.h"
#include "runtime/status.h"

namespace dunlin::svm {

struct LearnerOptions {
  Loss loss = Loss::kHinge;
  double lambda = 1e-4;
  double eta0 = 0;  // to be set; find_eta0() suggests one. eta0 * lambda < 1
  bool has_bias = true;
  // The order of the rows follows from seed, epoch and shard.
  std::uint64_t seed = 1;
  std::uint32_t shard = 0;
  // How far an example moves the schedule's t: 1 counts the learner's own examples; the number of
  // ranks counts, in effect, those of all ranks.
  std::uint64_t t_step = 1;

  bool operator==(const LearnerOptions&) const = default;
};

// All that a learner is besides its options, its data and the model memory.
struct LearnerState {
  std::uint64_t t = 0;         // of the learning-rate schedule
  std::uint64_t epoch = 0;     // passes over the data that are complete
  std::uint64_t position = 0;  // rows of the current pass that are done
  double scale = 1;            // weights = scale * model

  bool operator==(const LearnerState&) const = default;
};

class Learner {
 public:
  // Goes on from what stands in `model`: data.features weights, then the bias. Borrows both for its
  // lifetime. kInvalidArgument for options that cannot work, a model of another size or no rows.
  static Result<Learner> create(std::span<float> model, const Dataset& data,
                                const LearnerOptions& options);

  // Trains on the next `examples` rows, pass after pass, each in an order of its own.
  void train(std::uint64_t examples);

  // One step on a row of the data with rate `eta`, outside order and schedule; eta * lambda < 1.
  void step(std::size_t row, double eta);

  // Folds the scale into the weights: the model memory then is the model, and may be sent,
  // evaluated or overwritten by another until the next train() or step().
  void materialise();

  double eta() const;  // the rate of the next example
  std::uint64_t examples() const { return state_.epoch * order_.size() + state_.position; }

  // Together with the model memory's bytes, what restore() needs to go on bit for bit.
  const LearnerState& state() const { return state_; }
  // kInvalidArgument for a state that no learner with this data and these options can be in.
  Status restore(const LearnerState& state);

 private:
  Learner(std::span<float> model, const Dataset& data, const LearnerOptions& options);
  void shuffle();

  std::span<float> weights_;
  float& bias_;
  const Dataset& data_;
  LearnerOptions options_;
  LearnerState state_;
  std::vector<std::uint32_t> order_;  // of the current pass
};

// Bottou's search for eta0: a pass of constant rate over the first `sample_rows` rows, from a zero
// model, for rates that are powers of two, walking downhill from 1 until the objective on the
// sample no longer falls. options.eta0 is ignored; the options must otherwise be valid.
Result<double> find_eta0(const Dataset& data, LearnerOptions options,
                         std::size_t sample_rows = 1000);

}  // namespace dunlin::svm
