// The consistency benchmark: how many of its in-neighbours' models a reduce really averages, by the
// way of synchronising (ASAP, section 6.2 and figure 8).
//
// Every rank fills its model with one value that depends on rank and step only, so that the result
// shows what went in, whatever versions claim: in NOTIFY-ACK it is known exactly; in the weaker
// modes, where any step may meet any other, it must at least be the same in all elements.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "collectives/graph/graph.h"
#include "collectives/stochastic_reduce.h"
#include "tools/dunlin-perf/job.h"

namespace dunlin::perf {

// What the reduces of one rank, or of all ranks together, used.
struct Tally {
  std::vector<std::uint64_t> by_inputs;  // reduces with i consistent inputs, i = 0 .. in-degree
  std::uint64_t complete = 0;            // reduces with all inputs
  std::uint64_t torn = 0;                // inputs left out because they were being overwritten
  std::uint64_t stale = 0;               // inputs left out because nothing new had come
  std::uint64_t wrong = 0;               // reduces whose content was not what its inputs give
  std::uint64_t bytes_sent = 0;
  double seconds = 0;         // of the slowest rank
  double waited_seconds = 0;  // sum over the ranks

  std::uint64_t reduces() const;
  void add(const collective::ReduceReport& report, std::size_t in_degree);
  void add(const Tally& other);
};
nlohmann::ordered_json to_json(const Tally& tally);
Tally tally_from_json(const nlohmann::ordered_json& json);

// This rank's reduces in one mode. Collective; leaves when all ranks have done theirs.
Result<Tally> run_reduces(const ConsistencyOptions& options, std::uint32_t depth, Job& job,
                          const collective::Graph& graph, collective::SyncMode mode);

std::string format_consistency_heading(std::size_t in_degree);
std::string format_consistency(collective::SyncMode mode, const Tally& tally,
                               std::size_t in_degree);

}  // namespace dunlin::perf
