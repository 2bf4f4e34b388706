// Stochastic gradient descent for linear SVMs and logistic regression after L. Bottou, "Large-scale
// machine learning with stochastic gradient descent" (COMPSTAT 2010) and his program svmsgd. It
// minimizes lambda/2 |w|^2 + mean loss, example by example, with the rate eta0 / (1 + lambda eta0
// t). The bias is not regularized.
//
// The model lies in the caller's memory, since it is exchanged with other ranks in place. During
// training, the weights are `scale` times the values in this memory. Shrinking all weights then
// costs one multiplication, and a step only touches the features of its row. One thread.
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
  double eta0 = 0;  // has to be set; find_eta0() suggests one. eta0 * lambda < 1
  bool has_bias = true;
  // The order of the rows depends on seed, epoch and shard.
  std::uint64_t seed = 1;
  std::uint32_t shard = 0;
  // How far an example moves the schedule's t. With 1 the schedule counts the learner's own
  // examples; with the number of ranks it counts, in effect, the examples of all ranks.
  std::uint64_t t_step = 1;

  bool operator==(const LearnerOptions&) const = default;
};

// The state of a learner besides its options, its data and the model memory.
struct LearnerState {
  std::uint64_t t = 0;         // of the learning-rate schedule
  std::uint64_t epoch = 0;     // passes over the data that are complete
  std::uint64_t position = 0;  // rows of the current pass that are done
  double scale = 1;            // weights = scale * model

  bool operator==(const LearnerState&) const = default;
};

class Learner {
 public:
  // Continues from the content of `model`: data.features weights, then the bias. Borrows the model
  // and the data for its lifetime. kInvalidArgument for options that cannot work, a model of
  // another size or a data set without rows.
  static Result<Learner> create(std::span<float> model, const Dataset& data,
                                const LearnerOptions& options);

  // Trains on the next `examples` rows. It passes over the data again and again, each time in
  // another order.
  void train(std::uint64_t examples);

  // Makes one step on a row with rate `eta`, outside the order and the schedule; eta * lambda < 1.
  void step(std::size_t row, double eta);

  // Folds the scale into the weights. From then on until the next train() or step(), the model
  // memory is the model, and may be sent, evaluated or overwritten.
  void materialize();

  double eta() const;  // the rate of the next example
  std::uint64_t examples() const { return state_.epoch * order_.size() + state_.position; }

  // This and the bytes of the model memory are what restore() needs to continue bit for bit.
  const LearnerState& state() const { return state_; }
  // kInvalidArgument for a state that no learner with this data and these options can have.
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

// Bottou's search for eta0. For each rate it makes one pass of constant rate over the first
// `sample_rows` rows, from a zero model. The rates are powers of two; the search starts at 1 and
// follows the falling objective on the sample until it no longer falls. options.eta0 is ignored;
// the other options must be valid.
Result<double> find_eta0(const Dataset& data, LearnerOptions options,
                         std::size_t sample_rows = 1000);

}  // namespace dunlin::svm
