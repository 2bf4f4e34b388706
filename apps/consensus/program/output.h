// Output: what rank 0 tells of a run: JSON lines into a file, and a table on standard output. The
// other ranks' says nothing. Owner thread only.
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

  // "progress" lines of all moments, and some of them as a table.
  Status history(const std::vector<Moment>& history, const char* unit);
};

}  // namespace dunlin::consensus
