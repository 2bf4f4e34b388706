// Standing: what the members of a new epoch tell one another (apps/standings.h).
#pragma once

#include <cstdint>
#include <span>

#include "runtime/bytes.h"
#include "runtime/clock.h"
#include "runtime/status.h"

namespace dunlin::cnn {

struct Standing {
  bool has_model = false;       // of the training; newcomers have none yet
  bool is_over = false;         // this rank trains no more
  std::uint64_t iteration = 0;  // how many were done
  Duration timeout{};           // how long ranks wait for one another
  Duration trained{};           // the time of the training so far
  // The running means of the progress, and the number of batches in them.
  double loss = 0;
  double accuracy = 0;
  std::uint64_t batches = 0;

  Bytes encode() const;
  static Result<Standing> decode(std::span<const std::byte> bytes);
};

}  // namespace dunlin::cnn
