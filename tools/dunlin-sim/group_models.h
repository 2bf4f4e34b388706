// GroupModels: the models of the virtual workers, a parameter server's among them, and what methods
// do to them. Each call happens at once, at the virtual moment at which a method makes it: so
// averages are atomic.
//
// A worker's gradient is that of its model as it was when its computation began, whatever others
// have done to the model since, as in AD-PSGD. Same calls, same models, to the bit: sums are taken
// in the order of ranks. Owner thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/rank.h"
#include "tools/dunlin-sim/learning_problem.h"

namespace dunlin::simulate {

struct LearningOptions {
  std::size_t batch = 8;  // examples of a worker, in each iteration
  double learning_rate = 0.5;
  double target_loss = 0.32;
  // The target isn't reached if it isn't after so many iterations, of each worker on average.
  std::uint64_t most_iterations = 4000;
  // Between two looks at the loss; it is interpolated in between.
  std::uint64_t look_every = 2;
  // Judged is a parameter server's model; without one worker 0's, or else the mean of all.
  bool judges_worker = false;
};

class GroupModels {
 public:
  // Of workers that only take their time: calls do nothing.
  GroupModels() = default;
  // `problem` has to outlive this.
  GroupModels(const LearningProblem& problem, const LearningOptions& options, int workers);

  // The gradient of the worker's next batch at its model as it is now.
  void compute(Rank rank, std::uint64_t iteration);
  // The worker's model takes a step by its gradient.
  void step(Rank rank);
  void average(const std::vector<Rank>& ranks);
  // All workers' models take a step by the mean of all gradients.
  void step_by_mean();

  // The server's model takes a step by the mean of all gradients.
  void serve_mean();
  // Or by the gradient of one, as its share of the mean: so that the rate per iteration of all
  // workers is that of the others.
  void serve(Rank rank);
  // The worker's model becomes the server's.
  void pull(Rank rank);

  const std::vector<float>& model(Rank rank) const { return models_[rank.index()]; }
  std::vector<float> mean_model() const;
  double loss() const;

 private:
  std::vector<float> mean_gradient() const;
  void step(std::vector<float>& model, const std::vector<float>& gradient, double rate) const;

  const LearningProblem* problem_ = nullptr;  // null: nothing is learnt
  LearningOptions options_;
  // By worker.
  std::vector<std::vector<float>> models_;
  std::vector<std::vector<float>> gradients_;
  std::vector<float> server_;
  bool has_server_ = false;
};

}  // namespace dunlin::simulate
