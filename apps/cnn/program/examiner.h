// Examiner: tests models on the test images. The rank that reports has one with images, if there
// are any. Owner thread only.
#pragma once

#include <optional>
#include <vector>

#include "apps/cnn/batches.h"
#include "apps/cnn/device.h"
#include "apps/cnn/network.h"
#include "apps/cnn/program/data.h"
#include "apps/cnn/program/output.h"

namespace dunlin::cnn {

class Examiner {
 public:
  // Has none before. Borrows the images.
  void take(const Images& images, const Normalization& normalization);

  bool has_images() const { return batches_.has_value(); }
  std::size_t count() const { return count_; }

  // Tests the model that the network is bound to, on all images.
  Result<TestResult> test(Network& network);
  // Tests another model, which is parameters and then statistics. The network has its statistics
  // then, and can only be used again when it has been bound.
  Result<TestResult> test(Network& network, const Device& device, const std::vector<float>& model);

 private:
  std::optional<Batches> batches_;
  std::size_t count_ = 0;
};

}  // namespace dunlin::cnn
