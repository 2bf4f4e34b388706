// Asynchronous push-sum (BlueFog, section IV-C; Benezit et al. 2010). Every rank has a vector, and
// all ranks find the average of all vectors. No rank ever waits for another, and the graph may be
// directed.
//
// In a round, a rank keeps 1 / (out-degree + 1) of its vector x and its weight p. It adds the same
// share to the buffer that each out-neighbor has for it, and then collects the content of its own
// buffers. The sums of x and of p over all ranks, all buffers and everything in transit ("mass")
// stay the same up to rounding, and x / p becomes the average. Each rank runs at its own pace, and
// sleeps for a random time between two rounds.
#pragma once

#include <cstdint>

#include "apps/consensus/history.h"
#include "apps/consensus/ranks.h"
#include "collectives/communicator/communicator.h"
#include "collectives/graph/graph.h"

namespace dunlin::consensus {

struct PushSumOptions {
  std::size_t dimension = 8;
  std::uint64_t rounds = 400;  // of each rank, at least
  Duration longest_pause{};    // between rounds: uniform between 0 and this
  std::uint64_t record_every = 1;
  std::uint64_t seed = 1;  // of values and pauses
};

struct PushSumReport {
  std::vector<Moment> history;  // over the rounds of each rank
  double error_max = 0;         // of the worst rank at the very end, relative to the average
  double mass_error = 0;        // of the sum of all x at the end, relative to that at the start
  double weight_error = 0;      // the same of p
  std::uint64_t rounds = 0;     // of all ranks
  std::uint64_t deposits = 0;   // how many were collected, by all ranks
};

// Collective over all ranks of the fabric, which are those of the communicator. `graph` is strongly
// connected. The report is the same on all ranks.
Result<PushSumReport> run_push_sum(transport::Fabric& fabric,
                                   collective::Communicator& communicator, Ranks& ranks,
                                   const collective::Graph& graph, const PushSumOptions& options);

}  // namespace dunlin::consensus
