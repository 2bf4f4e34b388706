#include "collectives/groups/group.h"

#include <fmt/format.h>

namespace dunlin::collective {

Status check(const WorkerLayout& layout) {
  if (layout.hosts >= 1 && layout.workers_per_host >= 1 &&
      layout.workers_per_host <= kMostWorkers / layout.hosts)
    return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("{} hosts with {} workers each: both must be at least 1, and the workers at "
                      "most {}",
                      layout.hosts, layout.workers_per_host, kMostWorkers)};
}

}  // namespace dunlin::collective
