#include "runtime/bootstrap/pmix_launch.h"

namespace dunlin::bootstrap {

Result<JoinPlan> plan_from_pmix(const Config&) {
  return Status(Code::kUnavailable,
                "a PMIx launcher (mpirun, srun) started this process, but this build has no PMIx: "
                "install libpmix-dev and build again, or start the job with dunlin-run");
}

}  // namespace dunlin::bootstrap
