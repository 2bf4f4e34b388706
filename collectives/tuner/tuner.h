// Tuner: measures a communicator's links and kernels, predicts every algorithm with the cost model,
// tries those that are promising, and keeps the fastest.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/tuner/tuning.h"

namespace dunlin::collective {

struct TunerOptions {
  std::size_t smallest_bytes = 4;
  std::size_t largest_bytes = std::size_t{16} << 20;  // of input or output, whichever is larger
  std::size_t factor = 4;                             // from one size to the next
  // An algorithm that the model holds for this many times slower than the best is not tried.
  double hopeless = 10;
  // Per algorithm and size, about.
  Duration time = std::chrono::milliseconds(20);
  // Called at member 0 with every choice made; may be empty.
  std::function<void(const TunedChoice&)> report;
};

// Collective over the communicator, which takes up to some seconds. All members get the same.
Result<Tuning> tune(Communicator& communicator, const TunerOptions& options);

}  // namespace dunlin::collective
