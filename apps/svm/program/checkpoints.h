// Checkpoints of a job: each rank saves its own file at the same exchanges, and keeps the last two,
// as the others may not have come as far when it ends. A resumed job goes on with the run that
// began last of those of which every rank has checkpoints: at the latest exchange that every rank
// has, or, where ranks don't wait for one another (ASYNC), each rank at its own latest.
#pragma once

#include <cstdint>
#include <string>

#include "apps/svm/checkpoint.h"
#include "runtime/bootstrap/bootstrap.h"

namespace dunlin::svm {

// "<base>.<rank>.<exchange>"
std::string checkpoint_path(const std::string& base, Rank rank, std::uint64_t exchange);

// Saves, and removes the one before the last. The base's directory has to exist.
class CheckpointWriter {
 public:
  CheckpointWriter(std::string base, Rank rank) : base_(std::move(base)), rank_(rank) {}
  Status save(const Checkpoint& checkpoint);

 private:
  std::string base_;
  Rank rank_;
  std::uint64_t last_ = 0;
  std::uint64_t before_last_ = 0;
};

// Collective over all ranks: the checkpoint with which this rank goes on. kNotFound when there is
// none; files that can't be loaded are logged and don't count.
Result<Checkpoint> load_common_checkpoint(const std::string& base, Bootstrap& bootstrap,
                                          bool needs_same_exchange, Duration timeout);

}  // namespace dunlin::svm
