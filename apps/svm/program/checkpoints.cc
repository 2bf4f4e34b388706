#include "apps/svm/program/checkpoints.h"

namespace dunlin::svm {

Result<SavedState> read_state(const std::string& path) {
  DUNLIN_ASSIGN(const Checkpoint saved, load_checkpoint(path));
  return SavedState{{saved.rank, saved.ranks, saved.iteration}, saved.run, examples_of(saved)};
}

Status CheckpointWriter::save(const Checkpoint& checkpoint) {
  DUNLIN_TRY(save_checkpoint(files_.path(checkpoint.iteration), checkpoint));
  files_.note_saved(checkpoint.iteration);
  return Status::ok();
}

void CheckpointWriter::resume(const Checkpoint& begin) {
  files_.resume(saved_iterations(base_, begin.rank, begin.ranks, begin.run, read_state),
                begin.iteration);
}

}  // namespace dunlin::svm
