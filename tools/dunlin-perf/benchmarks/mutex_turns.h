// MutexTurns: counts turns under a mutex, in plain memory of which every rank has a copy. The rank
// that holds the mutex reads its own copy, adds one and writes the sum to all copies. Two ranks at
// the same time would lose a turn. The count also shows how many turns other ranks had since the
// last one of this rank: how fair the mutex is. Owner thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tools/dunlin-perf/job/job.h"

namespace dunlin::perf {

class MutexTurns {
 public:
  // Collective.
  static Result<std::unique_ptr<MutexTurns>> create(Job& job);

  // Takes a turn. This rank must hold the mutex.
  Status take();

  struct Figures {
    std::uint64_t turns = 0;  // of all ranks
    // Turns from one of a rank to its next. If the ranks alternate, that is the number of ranks.
    // Each figure is the largest of all ranks.
    std::uint64_t median = 0;
    std::uint64_t p99 = 0;
    std::uint64_t most = 0;
  };
  // To be called when all ranks have taken `each` turns. Returns kCorrupted if one was lost. The
  // figures are complete on rank 0. Collective.
  Result<Figures> finish(std::uint64_t each);

 private:
  explicit MutexTurns(Job& job) : job_(job) {}
  Status start();
  std::uint64_t& count() { return *reinterpret_cast<std::uint64_t*>(own_->data()); }

  Job& job_;
  std::unique_ptr<transport::LocalRegion> own_;
  std::vector<std::unique_ptr<transport::RemoteRegion>> others_;  // by rank; null: this one
  std::uint64_t last_ = 0;
  std::vector<std::uint64_t> gaps_;
};

}  // namespace dunlin::perf
