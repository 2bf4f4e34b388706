// A rank's checkpoint: one file with everything that the rank needs to continue its training.
//
// The file is replaced as a whole, so that there always is a complete one. It is little-endian,
// carries a version and ends with a BLAKE2b-256 of everything before it. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/bytes.h"
#include "runtime/status.h"

namespace dunlin::cnn {

struct Checkpoint {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;  // the workers; parameter servers save nothing
  std::uint64_t run = 0;    // new_run() of checkpoint_files.h
  std::uint64_t iteration = 0;
  std::string settings;  // has to be the same in a run that continues
  // The running means of the progress, and the number of batches in them.
  double loss = 0;
  double accuracy = 0;
  std::uint64_t batches = 0;
  std::vector<float> parameters;
  std::vector<float> velocity;    // empty without momentum, or if other ranks hold it
  std::vector<float> statistics;  // of batch normalization; they are not exchanged

  bool operator==(const Checkpoint&) const = default;
};

// The content of the file. `name` stands for it in errors, which are those of load_checkpoint().
Bytes encode_checkpoint(const Checkpoint& checkpoint);
Result<Checkpoint> decode_checkpoint(const std::string& name, std::string_view content);

Status save_checkpoint(const std::string& path, const Checkpoint& checkpoint);

// kNotFound without a file; kCorrupted for a file that is no checkpoint, is cut short, is too long
// or was changed; kUnavailable for a version of the format that this program does not know.
Result<Checkpoint> load_checkpoint(const std::string& path);

// Checks that a run can continue from `saved`, with any number of workers. `current` describes the
// run as it would start anew. kInvalidArgument names the first difference.
Status check_resumable(const Checkpoint& saved, const Checkpoint& current);

}  // namespace dunlin::cnn
