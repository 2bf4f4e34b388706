// Discovery: which job this process belongs to, from the variables that its launcher set.
//
// Reading the variables is separate from acting on them, so that every malformed combination can be
// tested without a network.
#pragma once

#include <string>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/net.h"

namespace dunlin::bootstrap {

// What the variables of dunlin-run, of a start by hand or of torchrun say.
struct Launch {
  JobInfo job;
  Endpoint coordinator;
  CoordinatorHost host = CoordinatorHost::kRank0;
  Endpoint listen;  // where rank 0 listens when it is the host
  std::string secret;
};

enum class LaunchKind { kDunlin, kTorchrun, kPmix, kSingle };
LaunchKind launch_kind(const Config& config, const Environment& environment);

Result<Launch> read_dunlin_variables(const Config& config);
Result<Launch> read_torchrun_variables(const Config& config, const Environment& environment);

// The job secret of DUNLIN_JOB_SECRET or DUNLIN_JOB_SECRET_FILE; without either an error that says
// how to make one.
Result<std::string> read_job_secret(const Config& config);

}  // namespace dunlin::bootstrap
