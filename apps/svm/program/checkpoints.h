// The checkpoints of a job of dunlin-svm. apps/checkpoint_files.h says which are kept and which are
// resumed. An iteration is an exchange here; in ASYNC, each rank continues at its own latest one.
#pragma once

#include <cstdint>
#include <string>

#include "apps/checkpoint_files.h"
#include "apps/svm/checkpoint.h"

namespace dunlin::svm {

// Saves checkpoints and removes the one before the last. The directory of the base has to exist.
class CheckpointWriter {
 public:
  CheckpointWriter(std::string base, Rank rank) : files_(std::move(base), rank) {}
  Status save(const Checkpoint& checkpoint);

 private:
  CheckpointRotation files_;
};

// Returns the checkpoint with which this rank continues. Collective over the members, once in an
// epoch. kNotFound when there is none; files that cannot be loaded are logged and do not count.
Result<Checkpoint> load_common_checkpoint(const std::string& base, Bootstrap& bootstrap,
                                          const Membership& membership, bool needs_same_exchange,
                                          Duration timeout);

}  // namespace dunlin::svm
