// The checkpoint files of a job. Each rank saves its own files at the same iterations and keeps the
// last two, since other ranks may not have come as far when the job ends.
//
// Of the runs of which every rank has checkpoints, a resumed job continues the one that began last.
// It continues at the latest iteration that every rank has; where ranks do not wait for one
// another, each rank continues at its own latest iteration.
//
// The programs decide what the files contain. Owner thread only.
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

// Identifies a run that starts now, other than a resumed one.
std::uint64_t new_run();

// "<base>.<rank>.<iteration>"
std::string checkpoint_path(const std::string& base, Rank rank, std::uint64_t iteration);
// The checkpoint files of a rank that exist.
std::vector<std::string> checkpoint_files(const std::string& base, Rank rank);

// Names the files that a rank saves, and removes the one before the last. The directory of the base
// has to exist.
class CheckpointRotation {
 public:
  CheckpointRotation(std::string base, Rank rank) : base_(std::move(base)), rank_(rank) {}
  std::string path(std::uint64_t iteration) const {
    return checkpoint_path(base_, rank_, iteration);
  }
  // To be called when path(iteration) has been written.
  void note_saved(std::uint64_t iteration);
  // To be called when a run continues after `iteration`. `own` names the iterations of the files
  // that this rank has of the run. Files of later iterations are removed, since the run takes
  // another course from now on.
  void resume(const std::set<std::uint64_t>& own, std::uint64_t iteration);

 private:
  std::string base_;
  Rank rank_;
  std::uint64_t last_ = 0;
  std::uint64_t before_last_ = 0;
};

// Decides with which of its checkpoints this rank continues. Collective over `members`, the ranks
// that save; to be called once for each `topic`. kNotFound when they have no checkpoint in common,
// kPeerDead as soon as one of them dies.
Result<CheckpointMoment> common_checkpoint(const std::string& topic, const std::string& base,
                                           const std::set<CheckpointMoment>& own,
                                           Bootstrap& bootstrap, const std::vector<Rank>& members,
                                           bool needs_same_iteration, Duration timeout);

}  // namespace dunlin
