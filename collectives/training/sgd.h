// Sgd: stochastic gradient descent with momentum and weight decay on a flat vector, computed like
// PyTorch's SGD: g += weight_decay * w; v = momentum * v + g; w -= learning_rate * v. Owner thread
// only.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace dunlin::training {

struct SgdOptions {
  float momentum = 0;
  float weight_decay = 0;
};

class Sgd {
 public:
  Sgd(const SgdOptions& options, std::size_t count);

  // Updates the elements [first, first + parameters.size()) of the model.
  void step(std::span<float> parameters, std::span<const float> gradient, float learning_rate,
            std::size_t first = 0);
  // The state v, which begins with zeros. Empty without momentum.
  std::span<float> velocity() { return velocity_; }

 private:
  SgdOptions options_;
  std::vector<float> velocity_;
};

}  // namespace dunlin::training
