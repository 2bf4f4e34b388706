#include "collectives/groups/group.h"

#include <fmt/format.h>

namespace dunlin::collective {

Status check(const WorkerLayout& layout) {
  if (layout.nodes >= 1 && layout.workers_per_node >= 1 &&
      layout.workers_per_node <= kMostWorkers / layout.nodes)
    return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("{} nodes with {} workers each: both must be at least 1, and the workers at "
                      "most {}",
                      layout.nodes, layout.workers_per_node, kMostWorkers)};
}

}  // namespace dunlin::collective
