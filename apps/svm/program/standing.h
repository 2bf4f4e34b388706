// Standing: what the members of a new epoch tell one another (apps/standings.h).
#pragma once

#include <cstdint>
#include <span>

#include "runtime/bytes.h"
#include "runtime/clock.h"
#include "runtime/status.h"

namespace dunlin::svm {

// How far a rank has come.
enum class Stage : std::uint8_t { kPreparing, kPrepared, kTraining };

struct Standing {
  Stage stage = Stage::kPreparing;
  std::uint64_t exchange = 0;  // how many were done
  std::uint64_t stop = 0;      // the exchange after which to stop; 0: not known
  std::uint64_t run = 0;
  std::uint64_t schedule = 0;  // LearnerState::t
  std::uint64_t examples = 0;  // of all workers
  double eta0 = 0;
  Duration absence{};  // how long a member may be away between two exchanges
  Duration trained{};  // the time of the training so far

  Bytes encode() const;
  static Result<Standing> decode(std::span<const std::byte> bytes);
};

}  // namespace dunlin::svm
