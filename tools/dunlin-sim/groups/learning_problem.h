// LearningProblem: the model and the data with which the virtual workers of `dunlin-sim groups
// --learn` train: a classifier with one hidden layer of rectified linear units and a softmax, on
// generated data, by mini-batches. It is small, but its gradients are real: they are noisy, and the
// loss is not convex.
//
// Each class consists of a few clusters in space, so that no linear model separates the classes.
// The clusters overlap, so that the loss does not drop to 0 at once. Workers draw their batches
// from all examples, independently and identically distributed, by seed, worker and iteration. The
// batches are therefore the same for all methods, and independent of the time of the computation.
//
// An immutable value; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/rank.h"

namespace dunlin::simulate {

class LearningProblem {
 public:
  // Constants that are multiples of the width of vector registers, so that the compiler vectorizes
  // the inner loops.
  static constexpr std::size_t kFeatures = 32;
  static constexpr std::size_t kHidden = 64;
  static constexpr std::size_t kClasses = 8;
  // The weights and biases of the hidden layer, then those of the output.
  static constexpr std::size_t kParameters = (kFeatures + 1) * kHidden + (kHidden + 1) * kClasses;

  explicit LearningProblem(std::uint64_t seed);

  // The model with which all workers begin.
  std::vector<float> initial_model() const;
  // Computes the mean gradient over the batch of the worker in this iteration, and returns the mean
  // cross-entropy over it.
  double gradient(std::span<const float> model, Rank worker, std::uint64_t iteration,
                  std::size_t batch, std::span<float> gradient) const;
  // Returns the mean cross-entropy over a fixed sample of the examples.
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
