// StaticSchedule: groups by rule, without any messages (Ripples / Prague, section 4.2).
//
// Every worker computes the same schedule, so all agree on it. No two groups of an iteration share
// a worker, so no group waits for another. The schedule repeats after kPeriod iterations. It
// follows the rules of the paper's figure 10, for any number of hosts N and of workers per host L
// (figures 9 and 10 show 4 x 4):
//
//   phase 0  The first workers of all hosts; inside each host, pairs from the last worker down, as
//            far as they go without the first worker.
//   phase 1  All workers of each host.
//   phase 2  The second worker of each host with that of the opposite host; the first worker with
//            the last one of its host; the others in pairs from the last one down.
//   phase 3  As phase 1.
//
// The opposite of host i is host i + N / 2 in a ring of hosts. With odd N, the last host has none.
// With one worker per host, that worker is both the first and the second. A worker that is left
// over goes on without synchronizing. Over a period the groups connect all workers, so every update
// reaches every worker.
//
// The schedule suits workers of about the same speed: a slow worker holds up all workers that it
// meets, and sooner or later all of them. A value; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/groups/group.h"
#include "runtime/status.h"

namespace dunlin::collective {

class StaticSchedule {
 public:
  static constexpr std::uint64_t kPeriod = 4;

  // kInvalidArgument: see check(layout).
  static Result<StaticSchedule> make(WorkerLayout layout);

  const WorkerLayout& layout() const { return layout_; }
  // The group of a worker in an iteration (from 0). The worker is alone in it if the schedule has
  // it skip the synchronization. The same for all members. `rank` must be a worker.
  Group group_of(std::uint64_t iteration, Rank rank) const;
  // All groups of an iteration with at least two workers, in the order of their leaders.
  std::vector<Group> groups_of(std::uint64_t iteration) const;

 private:
  explicit StaticSchedule(WorkerLayout layout) : layout_(layout) {}
  std::vector<Rank> members_of(std::uint64_t phase, Rank rank) const;

  WorkerLayout layout_;
};

}  // namespace dunlin::collective
