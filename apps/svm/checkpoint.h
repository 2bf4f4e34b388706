// A rank's checkpoint: everything it needs to go on where it was, in one file.
//
// The file is replaced as a whole, so that there always is a complete one; it is little-endian,
// carries a version and ends with a BLAKE2b-256 of all before it. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/svm/learner.h"
#include "runtime/status.h"

namespace dunlin::svm {

struct Checkpoint {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint64_t run = 0;          // when the run began, in ns since 1970; a resumed run keeps it
  std::uint64_t group_epoch = 0;  // how often the group was rebuilt after a loss
  std::uint64_t iteration = 0;    // exchanges so far
  std::uint64_t shard_rows = 0;
  LearnerOptions options;
  LearnerState state;
  std::vector<float> model;  // the model memory as it stands, not necessarily materialised

  bool operator==(const Checkpoint&) const = default;
};

Status save_checkpoint(const std::string& path, const Checkpoint& checkpoint);

// kNotFound without a file; kCorrupted for one that is no checkpoint, cut short, too long or
// changed; kUnavailable for a version of the format that this program does not know.
Result<Checkpoint> load_checkpoint(const std::string& path);

// Whether a run can go on from `saved` as if it had never stopped; `current` describes the run as
// it would start anew. kInvalidArgument names the first difference in ranks, rows, dimension, loss,
// lambda, bias, seed, shard or t_step. eta0 is taken over from `saved`, not compared.
Status check_resumable(const Checkpoint& saved, const Checkpoint& current);

}  // namespace dunlin::svm
