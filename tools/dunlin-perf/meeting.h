// Meeting: a job of two without a launcher. The one that listens is rank 1 and runs the
// coordinator, so that the one that connects is rank 0, which leads and prints; it also says what
// is measured. Everything goes through the ordinary bootstrap.
#pragma once

#include <memory>
#include <string>

#include "runtime/bootstrap/coordinator.h"
#include "tools/dunlin-perf/options.h"

namespace dunlin::perf {

// What a launcher has set contradicts --listen and --connect.
Status check_unlaunched(const Environment& environment);

// Rank 0. Tries for some seconds, or DUNLIN_BOOTSTRAP_TIMEOUT where that is set: the listener may
// come up later, or be at work for another client.
Result<std::unique_ptr<Bootstrap>> connect(const Options& options, const Config& config,
                                           const Environment& environment);

// Rank 1: a port at which clients come one after the other.
class Listener {
 public:
  struct Guest {
    std::unique_ptr<Bootstrap> bootstrap;
    std::string name;  // its host and process; empty: nobody has come
    Shared options;    // as the client wants them
  };

  // Both outlive it.
  Listener(const Options& options, const Config& config) : options_(options), config_(config) {}

  // Takes the port and says so on standard output.
  Status open();
  // The next client, waited for without a deadline. Who vanishes before the job has started is
  // passed over; who disagrees is told so, and is the error.
  Status accept(Guest& guest);

 private:
  Status start_coordinator();
  Status agree(Guest& guest) const;

  const Options& options_;
  const Config& config_;
  bootstrap::Endpoint endpoint_;
  std::string secret_;
  std::unique_ptr<bootstrap::Coordinator> coordinator_;  // of the next client
};

}  // namespace dunlin::perf
