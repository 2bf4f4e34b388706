// Asynchronous push-sum (BlueFog, section IV-C; Benezit et al. 2010): every rank has a vector, and
// all learn the average of all, though nobody ever waits for anybody and the graph is directed.
//
// In a round, a rank keeps 1 / (out-degree + 1) of its vector x and its weight p, adds as much to
// the buffer that each out-neighbour has for it, and collects what has come into its own. The sums
// of x and of p over all ranks, buffers and what is under way are what they were at first ("mass"),
// up to rounding, and x / p becomes the average. Rounds go at each rank's own pace: between two of
// them it sleeps for a random while.
#pragma once

#include <cstdint>

#include "apps/consensus/history.h"
#include "apps/consensus/ranks.h"
#include "collectives/communicator.h"
#include "collectives/graph/graph.h"

namespace dunlin::consensus {

struct PushSumOptions {
  std::size_t dimension = 8;
  std::uint64_t rounds = 400;  // that each rank does at least
  Duration longest_pause{};    // between rounds: uniform between 0 and this
  std::uint64_t record_every = 1;
  std::uint64_t seed = 1;  // of values and pauses
};

struct PushSumReport {
  std::vector<Moment> history;  // by each rank's own rounds
  double error_max = 0;         // of the worst rank at the very end, relative to the average
  double mass_error = 0;        // of the sum of all x at the end, relative to that at first
  double weight_error = 0;      // the same of p
  std::uint64_t rounds = 0;     // of all ranks
  std::uint64_t deposits = 0;   // that were collected, of all ranks
};

// Collective over all ranks of the fabric, which are those of the communicator. `graph` is strongly
// connected. The report is the same on all ranks.
Result<PushSumReport> run_push_sum(transport::Fabric& fabric,
                                   collective::Communicator& communicator, Ranks& ranks,
                                   const collective::Graph& graph, const PushSumOptions& options);

}  // namespace dunlin::consensus
