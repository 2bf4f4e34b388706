// Start-up under a PMIx launcher (mpirun, srun). PMIx supplies rank and size, and passes the
// coordinator's addresses and a new secret from rank 0 to the other ranks. In a job that may grow
// (DUNLIN_MAX_RANKS), address and secret come from the settings instead, since newcomers need them,
// too. Everything else uses the common protocol.
#pragma once

#include "runtime/bootstrap/tcp_bootstrap.h"

namespace dunlin::bootstrap {

// kUnavailable in a build without PMIx. The PMIx session ends when the rank leaves the job. A
// process can have one session at a time.
Result<JoinPlan> plan_from_pmix(const Config& config);

}  // namespace dunlin::bootstrap
