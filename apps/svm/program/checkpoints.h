// The checkpoints that a rank of dunlin-svm saves. An iteration of apps/checkpoint_files.h is an
// exchange here.
#pragma once

#include <cstdint>
#include <string>

#include "apps/checkpoint_files.h"
#include "apps/checkpoint_search.h"
#include "apps/svm/checkpoint.h"

namespace dunlin::svm {

// Loads a file for the search. What a rank has done is counted in examples.
Result<SavedState> read_state(const std::string& path);

// Saves checkpoints and removes the one before the last. The directory of the base has to exist.
class CheckpointWriter {
 public:
  CheckpointWriter(const std::string& base, std::uint32_t rank, std::uint32_t ranks)
      : base_(base), files_(base, rank, ranks) {}
  Status save(const Checkpoint& checkpoint);
  // To be called when the run continues from this state, if checkpoints are saved. Removes the
  // files of the run's later exchanges, since it takes another course from now on.
  void resume(const Checkpoint& begin);

 private:
  std::string base_;
  CheckpointRotation files_;
};

}  // namespace dunlin::svm
