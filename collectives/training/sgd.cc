#include "collectives/training/sgd.h"

namespace dunlin::training {

Sgd::Sgd(const SgdOptions& options, std::size_t count) : options_(options) {
  if (options_.momentum != 0) velocity_.resize(count);
}

void Sgd::step(std::span<float> parameters, std::span<const float> gradient, float learning_rate,
               std::size_t first) {
  const float decay = options_.weight_decay;
  if (velocity_.empty()) {
    for (std::size_t i = 0; i < parameters.size(); ++i)
      parameters[i] -= learning_rate * (gradient[i] + decay * parameters[i]);
    return;
  }
  float* const velocity = velocity_.data() + first;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    velocity[i] = options_.momentum * velocity[i] + gradient[i] + decay * parameters[i];
    parameters[i] -= learning_rate * velocity[i];
  }
}

}  // namespace dunlin::training
