// How a rank reaches its coordinator: at the start of the job, and again after an outage.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/bootstrap/coordinator.h"
#include "runtime/bootstrap/handshake.h"
#include "runtime/config.h"

namespace dunlin::bootstrap {

// How to join a job, as the launcher's variables describe it.
struct JoinPlan {
  JobInfo job;                        // job_id may be empty: the coordinator names the job
  std::vector<Endpoint> coordinator;  // possible addresses; the first that answers is used
  std::string secret;
  Rank host{0};                         // the rank that runs the coordinator; Rank(): the launcher
  std::unique_ptr<Coordinator> hosted;  // the coordinator, if this process runs it
  Duration timeout{};                   // for all ranks to join
  Duration linger{};                    // how long leave() keeps `hosted` for ranks in the job
  std::function<void()> on_leave;       // called at the end of leave()
  bool counts_local = false;            // find local_rank and local_size, which are not known
  ProcessId process = ProcessId::of_self();

  // Starts `hosted`, for the job and its secret.
  Status start_coordinator(const Config& config, const Endpoint& listen);
  // "the launcher" or "rank 0, which runs the coordinator,".
  std::string host_name() const;
};

// Reaches the coordinator for the first time. It may start later than this process, so this tries
// until the deadline. Until a coordinator has proven that it knows the secret, whatever answers may
// be another program.
Result<AuthenticatedSocket> find_coordinator(const JoinPlan& plan, TimePoint deadline);

// What one attempt to resume a session has met.
struct ReturnAttempt {
  std::optional<AuthenticatedSocket> connection;
  bool is_refused = false;      // nothing listens at the address
  std::optional<Status> final;  // the coordinator says that the session is over
  std::string problem;
};
// One attempt at each address. Takes kAttemptTime each at most.
ReturnAttempt try_to_return(const JoinPlan& plan, const Resumption& session);

}  // namespace dunlin::bootstrap
