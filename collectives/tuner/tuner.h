// tune: measures the links and kernels of a communicator, predicts the time of every algorithm with
// the cost model, measures the promising ones, and keeps the fastest.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "collectives/communicator/communicator.h"
#include "collectives/communicator/tuning.h"

namespace dunlin::collective {

struct TunerOptions {
  std::size_t smallest_bytes = 4;
  std::size_t largest_bytes = std::size_t{16} << 20;  // of input or output, whichever is larger
  std::size_t factor = 4;                             // from one size to the next
  // An algorithm is not measured if the model predicts that it takes this many times as long as the
  // best one.
  double hopeless = 10;
  // Approximate time to spend per algorithm and size.
  Duration time = std::chrono::milliseconds(20);
  // Called on member 0 with every choice. May be empty.
  std::function<void(const TunedChoice&)> report;
  // For a communicator of GPUs: one of host memory with the same members in the same order, by
  // which they agree on times. It outlives the call.
  Communicator* meeting = nullptr;
};

// Collective over the communicator; takes up to some seconds. Returns the same tuning on all
// members. communicator.use() puts it into effect, write_tuning() saves it. kInvalidArgument for a
// communicator of GPUs without options.meeting.
Result<Tuning> tune(Communicator& communicator, const TunerOptions& options);

}  // namespace dunlin::collective
