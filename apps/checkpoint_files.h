// The names of a job's checkpoint files. Each rank saves its own files at the same iterations and
// keeps the last two, since other ranks may not have come as far when the job ends. The programs
// decide what the files contain. Owner thread only.
#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dunlin {

// Identifies a run that starts now, in ns since 1970. A run that is resumed by as many ranks as
// saved it keeps its number; with another number of ranks it is a new run.
std::uint64_t new_run();

// What the name of a file says. It has the number of ranks, so that a run never replaces files of
// the run that it continues unless both have as many ranks.
struct CheckpointName {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;  // that save checkpoints
  std::uint64_t iteration = 0;

  auto operator<=>(const CheckpointName&) const = default;
};

// "<base>.<rank>-of-<ranks>.<iteration>"
std::string checkpoint_path(const std::string& base, const CheckpointName& name);
// The names of all checkpoint files that this process finds, in ascending order.
std::vector<CheckpointName> checkpoint_names(const std::string& base);

// Names the files that a rank saves, and removes the one before the last. The directory of the base
// has to exist.
class CheckpointRotation {
 public:
  CheckpointRotation(std::string base, std::uint32_t rank, std::uint32_t ranks)
      : base_(std::move(base)), rank_(rank), ranks_(ranks) {}
  std::string path(std::uint64_t iteration) const {
    return checkpoint_path(base_, {rank_, ranks_, iteration});
  }
  // To be called when path(iteration) has been written.
  void note_saved(std::uint64_t iteration);
  // To be called when a run continues after `iteration`. `own` names the iterations of the files
  // that this rank has of the run. Files of later iterations are removed, since the run takes
  // another course from now on.
  void resume(const std::set<std::uint64_t>& own, std::uint64_t iteration);

 private:
  std::string base_;
  std::uint32_t rank_;
  std::uint32_t ranks_;
  std::uint64_t last_ = 0;
  std::uint64_t before_last_ = 0;
};

}  // namespace dunlin
