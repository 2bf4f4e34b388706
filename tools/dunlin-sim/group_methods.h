// The methods that the heterogeneity experiments compare, each on a GroupCluster.
#pragma once

#include <memory>

#include "runtime/status.h"
#include "tools/dunlin-sim/group_cluster.h"

namespace dunlin::simulate {

enum class GroupMethod : std::uint8_t {
  kParameterServer,  // synchronous; in the memory of node 0: gradients in, then models out
  kAllReduce,        // of all workers, in every iteration
  // Whoever has computed averages with a random other worker, there and back. A worker is in one
  // averaging at a time and computes meanwhile, unless it is the one that asked for it. Requests
  // wait in the order in which they came until both are free.
  kAdPsgd,
  kStatic,  // groups from collective::StaticSchedule
  kRandom,  // from collective::GroupGenerator
  kSmart,
};
inline constexpr GroupMethod kGroupMethods[] = {
    GroupMethod::kParameterServer, GroupMethod::kAllReduce, GroupMethod::kAdPsgd,
    GroupMethod::kStatic,          GroupMethod::kRandom,    GroupMethod::kSmart};
const char* to_string(GroupMethod method);

// Iterations of all workers per second. An error: wrong settings, or a hang.
Result<double> measure_method(const GroupSetting& setting, GroupMethod method,
                              const Slowdown& slowdown);

}  // namespace dunlin::simulate
