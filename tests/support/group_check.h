// GroupChecker checks after each step that a group generator keeps its guarantees.
//
// check() examines the state of the generator:
//   - Every worker's queue contains groups of this worker, in the ascending order of all groups.
//   - There is no cycle of waiting groups. If each group runs once it is at the front of all its
//     members' queues, all queues run empty. This check does not use sequence numbers.
//   - A waiting worker has a group to wait for, and was notified of it if that was possible.
//   - A dead worker is in no group that is not over for it.
//   - Random policy: a group of which a worker was notified is first in all its members' queues.
// enter() and exit() check the workers: a worker is in one group at a time, so that no two groups
// that share a worker run at once. It takes its groups in ascending order, sees the same members as
// the other members, and is done with a group only after all members have entered it.
//
// Errors are kInternal and name the group or the worker. Owner thread only.
#pragma once

#include <map>
#include <vector>

#include "collectives/groups/generator.h"

namespace dunlin::collective {

class GroupChecker {
 public:
  explicit GroupChecker(int workers);

  // To be called after every call of the generator.
  Status check(const GroupGenerator& generator);
  // The check for cycles, which is the costly part of check().
  Status check_cycles(const GroupGenerator& generator);
  // To be called for every notice when it is made.
  Status check(const GroupNotice& notice, const GroupGenerator& generator) const;

  // A worker takes part in a group's reduce from enter() to exit(). `is_done` is false when it gave
  // the reduce up.
  Status enter(Rank rank, const Group& group);
  Status exit(Rank rank, bool is_done);

 private:
  struct Worker {
    std::uint64_t entered = 0;  // the last group
    std::uint64_t done = 0;
    bool is_inside = false;
  };
  struct Running {
    Group group;
    std::size_t inside = 0;
    std::size_t left = 0;
  };

  Status check_queue(const GroupGenerator& generator, Rank rank) const;
  Status check_waiting(const GroupGenerator& generator, Rank rank) const;

  std::vector<Worker> workers_;
  std::map<std::uint64_t, Running> groups_;
  std::vector<std::size_t> passed_;  // used by check_cycles() only
};

}  // namespace dunlin::collective
