// The checkpoint files of a job: each rank saves its own at the same iterations, and keeps the last
// two, as the others may not have come as far when it ends. A resumed job goes on with the run that
// began last of those of which every rank has checkpoints: at the latest iteration that every rank
// has, or, where ranks don't wait for one another, each rank at its own latest.
//
// What is in the files is the programs' own. Owner thread only.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/bootstrap/bootstrap.h"

namespace dunlin {

// When the run began, in ns since 1970, and the iteration in it.
using CheckpointMoment = std::pair<std::uint64_t, std::uint64_t>;

// Of now: what a run that is not resumed is known by.
std::uint64_t new_run();

// "<base>.<rank>.<iteration>"
std::string checkpoint_path(const std::string& base, Rank rank, std::uint64_t iteration);
// Those of a rank that exist.
std::vector<std::string> checkpoint_files(const std::string& base, Rank rank);

// Removes the one before the last, as files are saved. The base's directory has to exist.
class CheckpointRotation {
 public:
  CheckpointRotation(std::string base, Rank rank) : base_(std::move(base)), rank_(rank) {}
  std::string path(std::uint64_t iteration) const {
    return checkpoint_path(base_, rank_, iteration);
  }
  // path(iteration) was written.
  void note_saved(std::uint64_t iteration);
  // A run goes on after `iteration`; `own` are those of the files that this rank has of it. What
  // lies beyond is removed, as it is another course from now on; the rest was saved before.
  void resume(const std::set<std::uint64_t>& own, std::uint64_t iteration);

 private:
  std::string base_;
  Rank rank_;
  std::uint64_t last_ = 0;
  std::uint64_t before_last_ = 0;
};

// Collective over the job's first `ranks` ranks, which are those that save, once for each `topic`:
// with which of its own checkpoints this rank goes on. kNotFound when they have none in common.
Result<CheckpointMoment> common_checkpoint(const std::string& topic, const std::string& base,
                                           const std::set<CheckpointMoment>& own,
                                           Bootstrap& bootstrap, int ranks,
                                           bool needs_same_iteration, Duration timeout);

}  // namespace dunlin
