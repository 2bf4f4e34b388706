// The consistency benchmark: how many models of its in-neighbors a reduce really averages, by
// synchronization mode (ASAP, section 6.2 and figure 8).
//
// Every rank fills its model with one value that depends only on rank and step. The result
// therefore shows which inputs it has, independently of version numbers. With NOTIFY-ACK the result
// is known exactly. In the weaker modes any step may meet any other; there all elements must at
// least be equal.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "collectives/graph/graph.h"
#include "collectives/stochastic/stochastic_reduce.h"
#include "tools/dunlin-perf/job/job.h"

namespace dunlin::perf {

// Counts the inputs that the reduces of one rank, or of all ranks together, have used.
struct Tally {
  std::vector<std::uint64_t> by_inputs;  // reduces with i consistent inputs, i = 0 .. in-degree
  std::uint64_t complete = 0;            // reduces with all inputs
  std::uint64_t torn = 0;                // inputs left out because they were being overwritten
  std::uint64_t stale = 0;               // inputs left out because nothing new had arrived
  std::uint64_t wrong = 0;               // reduces whose result does not follow from their inputs
  std::uint64_t bytes_sent = 0;
  double seconds = 0;         // of the slowest rank
  double waited_seconds = 0;  // sum over all ranks

  std::uint64_t reduces() const;
  void add(const collective::ReduceReport& report, std::size_t in_degree);
  void add(const Tally& other);
};
nlohmann::ordered_json to_json(const Tally& tally);
Tally tally_from_json(const nlohmann::ordered_json& json);

// Makes the reduces of this rank in one mode. Returns when all ranks have made theirs. Collective.
Result<Tally> run_reduces(const ConsistencyOptions& options, std::uint32_t depth, Job& job,
                          const collective::Graph& graph, collective::SyncMode mode);

std::string format_consistency_heading(std::size_t in_degree);
std::string format_consistency(collective::SyncMode mode, const Tally& tally,
                               std::size_t in_degree);

}  // namespace dunlin::perf
