// A rank's checkpoint: one file with everything that the rank needs to continue its training.
//
// The file is replaced as a whole, so that there always is a complete one. It is little-endian,
// carries a version and ends with a BLAKE2b-256 of everything before it. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/digest.h"
#include "apps/svm/dataset.h"
#include "apps/svm/learner.h"
#include "runtime/bytes.h"
#include "runtime/status.h"

namespace dunlin::svm {

struct Checkpoint {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint64_t run = 0;          // new_run() of checkpoint_files.h
  std::uint64_t group_epoch = 0;  // how often the group was rebuilt after a death
  std::uint64_t iteration = 0;    // exchanges so far
  std::uint64_t shard_rows = 0;
  Digest data{};  // digest_of() the rank's shard
  LearnerOptions options;
  LearnerState state;
  std::vector<float> model{};    // the model memory as it stands, not necessarily materialized
  std::uint64_t averaged = 0;    // how many models are in the average (average.h)
  std::vector<float> average{};  // as long as the model, or empty where averaged is 0

  bool operator==(const Checkpoint&) const = default;
};

// The digest of everything in a shard. Those of all shards add up (sum_of()) to that of the set.
Digest digest_of(const Dataset& rows);

// The examples that the rank has trained on.
std::uint64_t examples_of(const Checkpoint& checkpoint);

// The content of the file. `name` stands for it in errors, which are those of load_checkpoint().
Bytes encode_checkpoint(const Checkpoint& checkpoint);
Result<Checkpoint> decode_checkpoint(const std::string& name, std::string_view content);

Status save_checkpoint(const std::string& path, const Checkpoint& checkpoint);

// kNotFound without a file; kCorrupted for a file that is no checkpoint, is cut short, is too long
// or was changed; kUnavailable for a version of the format that this program does not know.
Result<Checkpoint> load_checkpoint(const std::string& path);

// Checks that a run can continue from `saved`. `current` describes the run as it would start anew.
// kInvalidArgument names the first difference in dimension, loss, lambda, bias, seed, t_step or
// averaging, or in eta0 if `current` has one; otherwise that of `saved` is taken over. If both runs
// have as many ranks, the rows, the data and the number of the shard are compared as well, and the
// run continues as if it had never stopped.
Status check_resumable(const Checkpoint& saved, const Checkpoint& current);

}  // namespace dunlin::svm
