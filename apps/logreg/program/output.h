// Output: rank 0 reports the run, as JSON lines and as a table on standard output. The other ranks
// print nothing. Owner thread only.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "apps/logreg/admm.h"
#include "apps/logreg/program/options.h"
#include "apps/teller.h"

namespace dunlin::logreg {

// NaN and infinity become null.
using Json = nlohmann::ordered_json;

Json optional(const std::optional<double>& value);

// The times of an iteration, in seconds.
struct Times {
  double compute = 0;     // the updates of x, z and u, on the slowest rank
  double sync = 0;        // the all-reduce, on the rank that waited longest
  double sync_least = 0;  // the all-reduce, on the rank that waited least for others
  double elapsed = 0;     // both, on the slowest rank
};

struct Moment {
  int iteration = 0;
  double objective = 0;
  std::optional<double> relative_error;
  ConsensusAdmm::Residuals residuals;
  double rho = 0;   // of this iteration
  TronReport tron;  // of this rank
  Times times;
  double time_s = 0;  // elapsed time of all iterations so far
};

class Output : public Teller {
 public:
  // Opens the file. `is_teller`: this is rank 0.
  static Result<Output> open(const Options& options, bool is_teller);

  // Writes a "progress" line and, for some iterations and the last, prints a line of the table.
  Status progress(const Moment& moment, bool is_last);

 private:
  bool has_heading_ = false;
};

}  // namespace dunlin::logreg
