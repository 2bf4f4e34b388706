// StaticSchedule: groups by rule, without asking anybody (Ripples / Prague, section 4.2).
//
// Every worker computes the same schedule, so that all agree on it without a message; no two groups
// of an iteration share a worker, so that none waits for another. It repeats after kPeriod
// iterations; Fig. 10's rules, for any number of nodes N and of workers per node L (figures 9 and
// 10 are 4 x 4):
//
//   phase 0  the first workers of all nodes; inside each node, pairs from the last worker down, as
//            far as they go without the first
//   phase 1  all workers of each node
//   phase 2  the second worker of each node with that of the opposite node, the first with the last
//            of its node; the others in pairs from the last down
//   phase 3  as phase 1
//
// The opposite of node i is i + N / 2 in a ring of nodes; with odd N, the last node has none. With
// one worker per node, that one plays first and second. Who is left over goes on without
// synchronizing. Over a period the groups connect all workers, unless there is one worker only: so
// every update reaches everybody.
//
// For workers of about the same speed: a slow one holds up all that it meets, sooner or later all.
// A value; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/partial/group.h"
#include "runtime/status.h"

namespace dunlin::collective {

class StaticSchedule {
 public:
  static constexpr std::uint64_t kPeriod = 4;

  // kInvalidArgument: see check(layout).
  static Result<StaticSchedule> make(WorkerLayout layout);

  const WorkerLayout& layout() const { return layout_; }
  // The group of a worker in an iteration (from 0); it is alone in it where the schedule has it
  // skip the synchronization. The same for all members. `rank` must be a worker.
  Group group_of(std::uint64_t iteration, Rank rank) const;
  // All groups of an iteration, by their leaders, those of one worker left out.
  std::vector<Group> groups_of(std::uint64_t iteration) const;

 private:
  explicit StaticSchedule(WorkerLayout layout) : layout_(layout) {}
  std::vector<Rank> members_of(std::uint64_t phase, Rank rank) const;

  WorkerLayout layout_;
};

}  // namespace dunlin::collective
