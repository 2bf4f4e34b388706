// ModelState: a worker's model and all that belongs to it, in host memory: to keep it while the
// workers change, and to hand it over to a newcomer. A value.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace dunlin::cnn {

struct ModelState {
  std::vector<float> parameters;
  std::vector<float> velocity;    // of the optimizer; empty without momentum
  std::vector<float> statistics;  // of batch normalization

  // All in a row.
  std::vector<float> packed() const {
    std::vector<float> all;
    for (const auto* part : {&parameters, &velocity, &statistics})
      all.insert(all.end(), part->begin(), part->end());
    return all;
  }
  // Fills the parts, which have their sizes, from packed() of another worker.
  void unpack(std::span<const float> all) {
    for (auto* part : {&parameters, &velocity, &statistics}) {
      std::ranges::copy(all.first(part->size()), part->begin());
      all = all.subspan(part->size());
    }
  }
};

}  // namespace dunlin::cnn
