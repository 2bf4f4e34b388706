// Start under a PMIx launcher (mpirun, srun): PMIx tells rank and size and carries the
// coordinator's addresses and a fresh secret from rank 0 to the others; everything else is the
// usual protocol.
#pragma once

#include "runtime/bootstrap/tcp_bootstrap.h"

namespace dunlin::bootstrap {

// kUnavailable in a build without PMIx. The plan ends the PMIx session when the job is left. One
// session at a time in a process.
Result<JoinPlan> plan_from_pmix(const Config& config);

}  // namespace dunlin::bootstrap
