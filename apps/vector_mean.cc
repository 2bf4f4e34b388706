#include "apps/vector_mean.h"

#include <cstddef>

namespace dunlin {

// The first vector is assigned and not added to zeros, which would lose the sign of a -0.
void VectorMean::add(std::span<const float> vector) {
  if (count_ == 0) {
    sum_.assign(vector.begin(), vector.end());
  } else {
    for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += static_cast<double>(vector[i]);
  }
  ++count_;
}

std::vector<float> VectorMean::mean() const {
  std::vector<float> mean;
  mean.reserve(sum_.size());
  for (const double sum : sum_) mean.push_back(static_cast<float>(sum / count_));
  return mean;
}

}  // namespace dunlin
