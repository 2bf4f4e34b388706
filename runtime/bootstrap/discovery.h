// Discovery: reads from the environment to which job this process belongs.
//
// Reading the variables is separate from joining the job, so that all malformed combinations can be
// tested without a network.
#pragma once

#include <string>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/net.h"

namespace dunlin::bootstrap {

// The contents of the variables that dunlin-run, torchrun or the user has set.
struct Launch {
  JobInfo job;
  Endpoint coordinator;
  CoordinatorHost host = CoordinatorHost::kRank0;
  Endpoint listen;  // where rank 0 listens when it runs the coordinator
  std::string secret;
};

enum class LaunchKind { kDunlin, kTorchrun, kPmix, kSingle };
LaunchKind launch_kind(const Config& config, const Environment& environment);

Result<Launch> read_dunlin_variables(const Config& config);
Result<Launch> read_torchrun_variables(const Config& config, const Environment& environment);

// Makes the job's ranks its founders, and leaves others, up to DUNLIN_MAX_RANKS, for processes that
// join it later.
Status leave_room(JobInfo& job, const Config& config);
// DUNLIN_JOB_ID, which may be empty.
Result<std::string> read_job_id(const Config& config);
// The endpoint in the text of the variable `name`. The port is not 0.
Result<Endpoint> read_endpoint(const char* name, const std::string& text);

// The job secret from DUNLIN_JOB_SECRET or DUNLIN_JOB_SECRET_FILE. When there is none, or when it
// is shorter than kMinSecretBytes, the error says how to make one.
Result<std::string> read_job_secret(const Config& config);

}  // namespace dunlin::bootstrap
