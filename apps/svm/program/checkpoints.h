// Checkpoints of a job (apps/checkpoint_files.h says which are kept and which are gone on with), an
// iteration being an exchange: in ASYNC, each rank goes on at its own latest.
#pragma once

#include <cstdint>
#include <string>

#include "apps/checkpoint_files.h"
#include "apps/svm/checkpoint.h"

namespace dunlin::svm {

// Saves, and removes the one before the last. The base's directory has to exist.
class CheckpointWriter {
 public:
  CheckpointWriter(std::string base, Rank rank) : files_(std::move(base), rank) {}
  Status save(const Checkpoint& checkpoint);

 private:
  CheckpointRotation files_;
};

// Collective over all ranks: the checkpoint with which this rank goes on. kNotFound when there is
// none; files that can't be loaded are logged and don't count.
Result<Checkpoint> load_common_checkpoint(const std::string& base, Bootstrap& bootstrap,
                                          bool needs_same_exchange, Duration timeout);

}  // namespace dunlin::svm
