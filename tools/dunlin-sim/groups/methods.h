// The methods that the heterogeneity experiments compare, each on a GroupCluster.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/status.h"
#include "tools/dunlin-sim/groups/cluster.h"

namespace dunlin::simulate {

enum class GroupMethod : std::uint8_t {
  kParameterServer,       // in the memory of host 0: takes gradients; sends models when it has all
  kAsyncParameterServer,  // there, too: takes each gradient as it arrives, and sends its model back
  kAllReduce,             // of the gradients of all workers, in every iteration
  // Models are averaged over all workers every local_section_length iterations.
  kLocalSgd,
  // A worker that has computed averages with a random other worker, there and back. A worker takes
  // part in one averaging at a time. It computes meanwhile, unless it has asked for the averaging.
  // Requests wait in the order of their arrival until both workers are free.
  kAdPsgd,
  kStatic,  // groups from collective::StaticSchedule
  kRandom,  // from collective::GroupGenerator, by policy
  // Random groups as in figure 8 of the paper, which does not say that drafted workers must have
  // computed: a group is reduced as soon as none of its workers takes part in another one, and only
  // the worker that has asked waits for it.
  kRandomAtOnce,
  kBuffered,
  kSmart,
};
inline constexpr GroupMethod kGroupMethods[] = {
    GroupMethod::kParameterServer, GroupMethod::kAsyncParameterServer,
    GroupMethod::kAllReduce,       GroupMethod::kLocalSgd,
    GroupMethod::kAdPsgd,          GroupMethod::kStatic,
    GroupMethod::kRandom,          GroupMethod::kRandomAtOnce,
    GroupMethod::kBuffered,        GroupMethod::kSmart};
const char* to_string(GroupMethod method);

// Returns the iterations of all workers per second. Errors are wrong settings and hangs.
Result<double> measure_method(const GroupSetting& setting, GroupMethod method,
                              const Slowdown& slowdown);

struct LearningMoment {
  double iterations = 0;  // average over the workers
  double seconds = 0;
  double loss = 0;
};
struct LearningRun {
  std::vector<LearningMoment>
      curve;  // ends with the first evaluation at which the target is reached
  std::optional<LearningMoment> target;  // when it was reached; nothing: not within most_iterations
};
// Lets the workers learn until the target is reached; setting.iterations is ignored. The errors are
// those of measure_method(). A loss that is not a number ends the run and is no error.
Result<LearningRun> learn_method(const GroupSetting& setting, GroupMethod method,
                                 const Slowdown& slowdown, const LearningProblem& problem,
                                 const LearningOptions& options);

}  // namespace dunlin::simulate
