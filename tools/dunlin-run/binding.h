// Which cores each rank runs on.
#pragma once

#include <sched.h>

#include <optional>
#include <vector>

#include "runtime/status.h"
#include "tools/dunlin-run/options.h"

namespace dunlin::run {

// For each local rank the CPUs that it is bound to; nothing where the kernel decides. The usable
// cores are shared out in equal, adjacent parts. Where ranks outnumber the host's cores (kShared),
// each rank gets one core, in turns. A rank alone is not bound.
Result<std::vector<std::optional<cpu_set_t>>> plan_binding(Bind bind, int ranks);

}  // namespace dunlin::run
