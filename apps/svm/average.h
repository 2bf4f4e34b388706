// ModelAverage: an average of the models that a rank had in the course of its training.
//
// The iterates of stochastic gradient descent move around the optimum; their average lies nearer to
// it than the last of them. Later models weigh more: the n-th has the weight n^7, about, so that
// the first models, which are far from the optimum, are soon forgotten (polynomial-decay averaging:
// O. Shamir and T. Zhang, "Stochastic gradient descent for non-smooth optimization", ICML 2013).
// The average is never sent: each rank averages its own models. Owner thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dunlin::svm {

class ModelAverage {
 public:
  // Every model has as many elements as the first one.
  void add(std::span<const float> model);

  // How many models were added. The average is empty while there are none.
  std::uint64_t count() const { return count_; }
  std::span<const float> average() const { return average_; }

  // Continues as if `count` models with this average had been added.
  void restore(std::uint64_t count, std::span<const float> average);

 private:
  std::uint64_t count_ = 0;
  std::vector<float> average_;
};

}  // namespace dunlin::svm
