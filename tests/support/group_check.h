// GroupChecker: whether a group generator keeps its promises, step by step.
//
// Two sides are looked at. What the generator knows, check():
//   - every worker's queue is ascending (a part of the one total order), of groups that have it;
//   - nobody waits in a cycle: if members reduced from the fronts of their queues only, all queues
//     would run empty (found out without sequence numbers);
//   - a waiting worker has a group to wait for, which it was told of if it could be;
//   - no group has a lost worker that isn't done with it;
//   - random policy: what anybody was told of is in front of all its members' queues.
// And what the workers do, enter() and exit(): a worker is in one group at a time, so that no two
// groups that share a worker run at once; in groups of ascending sequence, with the members that
// the others see, and is done with one only after all have come to it.
//
// Errors are kInternal and say what is wrong with which group or worker. Owner thread only.
#pragma once

#include <map>
#include <vector>

#include "collectives/partial/group_generator.h"

namespace dunlin::collective {

class GroupChecker {
 public:
  explicit GroupChecker(int workers);

  // After every call of the generator.
  Status check(const GroupGenerator& generator);
  // The part of check() about cycles, which costs most.
  Status check_cycles(const GroupGenerator& generator);
  // Every notice, when it is made.
  Status check(const GroupNotice& notice, const GroupGenerator& generator) const;

  // A worker waits in, or takes part in, a group's reduce, until its exit: done, or given up.
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
  std::vector<std::size_t> passed_;  // of check_cycles()
};

}  // namespace dunlin::collective
