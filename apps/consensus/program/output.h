// Output: rank 0 reports the run, as JSON lines and as a table on standard output. The other ranks
// print nothing. Owner thread only.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "apps/consensus/history.h"
#include "apps/consensus/program/options.h"
#include "apps/teller.h"

namespace dunlin::consensus {

// NaN and infinity become null.
using Json = nlohmann::ordered_json;

class Output : public Teller {
 public:
  // Opens the file. `is_teller`: this is rank 0.
  static Result<Output> open(const Options& options, bool is_teller);

  // Writes a "progress" line for each moment, and prints some of them as a table.
  Status history(const std::vector<Moment>& history, const char* unit);
};

}  // namespace dunlin::consensus
