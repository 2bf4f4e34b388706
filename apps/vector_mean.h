// VectorMean: the mean of vectors that come one after the other. Owner thread only.
#pragma once

#include <span>
#include <vector>

namespace dunlin {

class VectorMean {
 public:
  // Every vector has as many elements as the first one.
  void add(std::span<const float> vector);
  // The mean of the vectors, one at least. It is computed in double, so that the mean of equal
  // vectors has their bits.
  std::vector<float> mean() const;

 private:
  std::vector<double> sum_;
  double count_ = 0;
};

}  // namespace dunlin
