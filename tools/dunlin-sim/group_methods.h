// The methods that the heterogeneity experiments compare, each on a GroupCluster.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/status.h"
#include "tools/dunlin-sim/group_cluster.h"

namespace dunlin::simulate {

enum class GroupMethod : std::uint8_t {
  kParameterServer,       // in the memory of node 0: gradients in, when all are in, models out
  kAsyncParameterServer,  // there, too: takes each gradient as it comes, and sends its model back
  kAllReduce,             // of gradients of all workers, in every iteration
  // Models are averaged over all workers every local_section_length iterations.
  kLocalSgd,
  // Whoever has computed averages with a random other worker, there and back. A worker is in one
  // averaging at a time and computes meanwhile, unless it is the one that asked for it. Requests
  // wait in the order in which they came until both are free.
  kAdPsgd,
  kStatic,  // groups from collective::StaticSchedule
  kRandom,  // from collective::GroupGenerator, by policy
  kBuffered,
  kSmart,
};
inline constexpr GroupMethod kGroupMethods[] = {GroupMethod::kParameterServer,
                                                GroupMethod::kAsyncParameterServer,
                                                GroupMethod::kAllReduce,
                                                GroupMethod::kLocalSgd,
                                                GroupMethod::kAdPsgd,
                                                GroupMethod::kStatic,
                                                GroupMethod::kRandom,
                                                GroupMethod::kBuffered,
                                                GroupMethod::kSmart};
const char* to_string(GroupMethod method);

// Iterations of all workers per second. An error: wrong settings, or a hang.
Result<double> measure_method(const GroupSetting& setting, GroupMethod method,
                              const Slowdown& slowdown);

struct LearningMoment {
  double iterations = 0;  // of each worker, on average
  double seconds = 0;
  double loss = 0;
};
struct LearningRun {
  std::vector<LearningMoment> curve;     // ends with the first look at which the target is reached
  std::optional<LearningMoment> target;  // when it was; nothing: not within most_iterations
};
// The workers learn until the target is reached. setting.iterations doesn't matter. Errors: as of
// measure_method(); a loss that isn't a number is none, it ends the run.
Result<LearningRun> learn_method(const GroupSetting& setting, GroupMethod method,
                                 const Slowdown& slowdown, const LearningProblem& problem,
                                 const LearningOptions& options);

}  // namespace dunlin::simulate
