// LearningProblem: what the virtual workers of `dunlin-sim groups --learn` train: a classifier with
// one hidden layer of rectified linear units and a softmax, on generated data, by mini-batches. It
// is small, but the gradients are real ones: noisy, of a loss that isn't convex.
//
// Data: each class is a few clusters in space, so that no linear model separates them; clusters
// overlap, so that the loss doesn't go to 0 at once. Workers draw their batches from all examples,
// independently and alike (i.i.d.), by seed, worker and iteration: the same whatever the method is
// and whenever they compute.
//
// A value that doesn't change; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/rank.h"

namespace dunlin::simulate {

class LearningProblem {
 public:
  // Known when this is compiled, and multiples of what a vector register holds, so that inner loops
  // become vector instructions.
  static constexpr std::size_t kFeatures = 32;
  static constexpr std::size_t kHidden = 64;
  static constexpr std::size_t kClasses = 8;
  // Weights and biases of the hidden layer, then those of the output.
  static constexpr std::size_t kParameters = (kFeatures + 1) * kHidden + (kHidden + 1) * kClasses;

  explicit LearningProblem(std::uint64_t seed);

  // Where all workers begin.
  std::vector<float> initial_model() const;
  // The mean gradient over the batch that the worker draws in this iteration, and the mean
  // cross-entropy over it.
  double gradient(std::span<const float> model, Rank worker, std::uint64_t iteration,
                  std::size_t batch, std::span<float> gradient) const;
  // The mean cross-entropy over a fixed sample of the examples.
  double loss(std::span<const float> model) const;

 private:
  struct Example {
    float features[kFeatures];
    std::size_t label = 0;
  };

  std::uint64_t seed_;
  std::vector<Example> examples_;
};

}  // namespace dunlin::simulate
