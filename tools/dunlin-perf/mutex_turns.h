// MutexTurns: counts turns under a mutex, in plain memory that every rank has a copy of: whoever
// holds the mutex reads its own, adds one and writes that to all. Any two at the same time would
// lose one. What a rank reads is also how many turns others had since its last: how fair the mutex
// is. Owner thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tools/dunlin-perf/job.h"

namespace dunlin::perf {

class MutexTurns {
 public:
  // Collective.
  static Result<std::unique_ptr<MutexTurns>> create(Job& job);

  // A turn of this rank, which holds the mutex.
  Status take();

  struct Figures {
    std::uint64_t turns = 0;  // of all ranks
    // From one turn of a rank to its next: as many as there are ranks, if they take turns. The
    // largest of all ranks' each.
    std::uint64_t median = 0;
    std::uint64_t p99 = 0;
    std::uint64_t most = 0;
  };
  // When all ranks have taken `each` turns. Collective; kCorrupted where one was lost. Figures are
  // rank 0's.
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
