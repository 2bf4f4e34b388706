// A rank's checkpoint: everything that its training needs to go on where it was, in one file.
//
// The file is replaced as a whole, so that there always is a complete one; it is little-endian,
// carries a version and ends with a BLAKE2b-256 of all before it. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/status.h"

namespace dunlin::cnn {

struct Checkpoint {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint64_t run = 0;  // when the run began, in ns since 1970; a resumed run keeps it
  std::uint64_t iteration = 0;
  std::string settings;  // what has to be the same in a run that goes on
  // The running means that progress is told by, and of how many batches they are.
  double loss = 0;
  double accuracy = 0;
  std::uint64_t batches = 0;
  std::vector<float> parameters;
  std::vector<float> velocity;    // empty without momentum, or where others hold it
  std::vector<float> statistics;  // of batch normalisation: the rank's own

  bool operator==(const Checkpoint&) const = default;
};

Status save_checkpoint(const std::string& path, const Checkpoint& checkpoint);

// kNotFound without a file; kCorrupted for one that is no checkpoint, cut short, too long or
// changed; kUnavailable for a version of the format that this program does not know.
Result<Checkpoint> load_checkpoint(const std::string& path);

// Whether a run can go on from `saved`; `current` describes the run as it would start anew.
// kInvalidArgument names the first difference.
Status check_resumable(const Checkpoint& saved, const Checkpoint& current);

}  // namespace dunlin::cnn
