// Decides which cores each rank runs on.
#pragma once

#include <sched.h>

#include <optional>
#include <vector>

#include "runtime/core_claims.h"
#include "runtime/status.h"
#include "tools/dunlin-run/options.h"

namespace dunlin::run {

// Returns the CPUs of each local rank; nothing for a rank that the kernel may place anywhere. Ranks
// get equal parts of the usable cores, of adjacent cores each. When ranks outnumber the cores of
// the host (kShared), each rank gets one core, in turns. A single rank is not bound.
//
// Cores that another job has bound its ranks to are left out; where too few are left, kAuto binds
// nothing, and kCore fails. The cores used are taken in `claims`.
Result<std::vector<std::optional<cpu_set_t>>> plan_binding(Bind bind, int ranks,
                                                           CoreClaims& claims);

}  // namespace dunlin::run
