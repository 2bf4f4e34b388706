#include "apps/cnn/program/examiner.h"

#include <algorithm>
#include <span>

namespace dunlin::cnn {

void Examiner::take(const Images& images, const Normalization& normalization) {
  count_ = images.count();
  batches_.emplace(images, normalization, Batches::Options{}, 1);
}

Result<TestResult> Examiner::test(Network& network) {
  constexpr std::size_t kAtOnce = 200;
  TestResult result;
  for (std::size_t first = 0; first < count_; first += kAtOnce) {
    const std::size_t part = std::min(kAtOnce, count_ - first);
    DUNLIN_ASSIGN(const Judgment judgment, network.evaluate(batches_->in_order(first, part)));
    result.loss += judgment.loss * static_cast<double>(part);
    result.accuracy += static_cast<double>(judgment.right);
  }
  result.loss /= static_cast<double>(count_);
  result.accuracy /= static_cast<double>(count_);
  return result;
}

Result<TestResult> Examiner::test(Network& network, const Device& device,
                                  const std::vector<float>& model) {
  const std::size_t count = network.architecture().count;
  DUNLIN_ASSIGN(const auto memory, device.allocate(count));
  DUNLIN_TRY(device.write(memory.elements(), std::span(model).first(count)));
  DUNLIN_TRY(device.write(network.statistics(), std::span(model).subspan(count)));
  DUNLIN_TRY(network.bind(memory.elements(), {}));
  return test(network);
}

}  // namespace dunlin::cnn
