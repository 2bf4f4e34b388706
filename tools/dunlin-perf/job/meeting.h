// Meeting: a job of two ranks without a launcher. The listener is rank 1 and runs the coordinator.
// The side that connects is rank 0: it leads, prints and chooses what is measured. Both use the
// ordinary bootstrap.
#pragma once

#include <memory>
#include <string>

#include "runtime/bootstrap/coordinator.h"
#include "tools/dunlin-perf/options/options.h"

namespace dunlin::perf {

// Returns an error when a launcher has set variables that contradict --listen and --connect.
Status check_unlaunched(const Environment& environment);

// Joins as rank 0. Tries for some seconds, or for DUNLIN_BOOTSTRAP_TIMEOUT if that is set, because
// the listener may start later or serve another client.
Result<std::unique_ptr<Bootstrap>> connect(const Options& options, const Config& config,
                                           const Environment& environment);

// Rank 1: a port to which clients connect one after the other.
class Listener {
 public:
  struct Guest {
    std::unique_ptr<Bootstrap> bootstrap;
    std::string name;  // its host and process; empty: no client has connected
    Shared options;    // those of the client
  };

  // Both arguments must outlive it.
  Listener(const Options& options, const Config& config) : options_(options), config_(config) {}

  // Opens the port and prints it on standard output.
  Status open();
  // Waits for the next client, without a deadline. A client that disappears before the job has
  // started is skipped. A client whose options disagree gets the reason, which is also the error.
  Status accept(Guest& guest);

 private:
  Status start_coordinator();
  Status agree(Guest& guest) const;

  const Options& options_;
  const Config& config_;
  bootstrap::Endpoint endpoint_;
  std::string secret_;
  std::unique_ptr<bootstrap::Coordinator> coordinator_;  // for the next client
};

}  // namespace dunlin::perf
