// GroupModels: the models of the virtual workers and of a parameter server, and the operations of
// the methods on them. Each call takes effect at the virtual time at which a method makes it, so
// averages are atomic.
//
// The gradient of a worker is that of its model at the beginning of the computation, even if others
// have changed the model since, as in AD-PSGD. The same calls give the same models to the bit, as
// sums are taken in the order of ranks. Owner thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/rank.h"
#include "tools/dunlin-sim/groups/learning_problem.h"

namespace dunlin::simulate {

struct LearningOptions {
  std::size_t batch = 8;  // examples of a worker, in each iteration
  double learning_rate = 0.5;
  double target_loss = 0.32;
  // The run ends without the target after this many iterations, on average over the workers.
  std::uint64_t most_iterations = 4000;
  // Iterations between two evaluations of the loss, which is interpolated in between.
  std::uint64_t look_every = 2;
  // The loss is that of the parameter server's model. Without a server, it is that of worker 0's
  // model if this is set, otherwise that of the mean of all models.
  bool judges_worker = false;
};

class GroupModels {
 public:
  // For workers that only take time. The calls have no effect.
  GroupModels() = default;
  // `problem` must outlive this object.
  GroupModels(const LearningProblem& problem, const LearningOptions& options, int workers);

  // Computes the gradient of the worker's next batch at its present model.
  void compute(Rank rank, std::uint64_t iteration);
  // Steps the model of the worker by its gradient.
  void step(Rank rank);
  void average(const std::vector<Rank>& ranks);
  // Steps the models of all workers by the mean of all gradients.
  void step_by_mean();

  // Steps the model of the server by the mean of all gradients.
  void serve_mean();
  // Steps it by the gradient of one worker, as its share of the mean, so that an iteration of all
  // workers has the same rate as with the other methods.
  void serve(Rank rank);
  // Copies the model of the server to the worker.
  void pull(Rank rank);

  const std::vector<float>& model(Rank rank) const { return models_[rank.index()]; }
  std::vector<float> mean_model() const;
  double loss() const;

 private:
  std::vector<float> mean_gradient() const;
  void step(std::vector<float>& model, const std::vector<float>& gradient, double rate) const;

  const LearningProblem* problem_ = nullptr;  // null: no learning
  LearningOptions options_;
  // Indexed by worker.
  std::vector<std::vector<float>> models_;
  std::vector<std::vector<float>> gradients_;
  std::vector<float> server_;
  bool has_server_ = false;
};

}  // namespace dunlin::simulate
