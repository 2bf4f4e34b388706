// GroupMaster: the state of the rank that serves groups (groups/service.h): the generator, which
// workers have left, and which groups of a former master workers are still in. It has no messages
// and no clock: what workers say goes in, and what they are to be told comes out. Owner thread
// only.
//
// A new master begins with an empty state, as no state is passed from master to master. This is
// safe, and costs little:
//   - A worker that is in a group of a former master reports it when it turns to the new one
//     (kResume), and the last groups that it is done with. Such a group goes on to its end if each
//     member is in it or done with it. It is broken if a member is dead, or has turned to this
//     master and is neither: it was not told of the group, or the group has failed there. Until all
//     members have reported, those that have joined wait, as they do for a member that computes. So
//     no worker waits without end, and the turn to a new master never breaks a reduce that all
//     members have begun.
//   - A group that no member was told of is forgotten. Workers ask again and are given new groups.
//     Iteration counters come with the asks. A worker that hasn't asked yet counts as far behind
//     until it does.
//   - Numbers are above those of all former masters (GroupNumbers in groups/numbers.h), so all
//     groups are still in one total order.
// When a master dies, some averages are lost, but no model. To copy the state to a
// successor would save these averages. But it would take a message for every call, the master would
// have to wait for its acknowledgment before it sends any notice, and the state would be lost all
// the same if both died.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "collectives/groups/generator.h"
#include "collectives/groups/message.h"

namespace dunlin::collective::groups {

class GroupMaster {
 public:
  // Numbers its groups from `first` on. Lower numbers are those of former masters. Returns the
  // errors of GroupGenerator::make().
  static Result<GroupMaster> make(const GroupOptions& options, std::uint64_t first);

  // Handles a message of a worker. Messages of a worker have to come in their order. kPeerDead: the
  // worker was reported dead, or has left. After any other error the message was impossible and had
  // no effect, and the worker should be told.
  Status hear(Rank from, const GroupMessage& message, GroupNotices& notices);
  // The rank is dead, or gone without a message.
  Status lose(Rank rank, GroupNotices& notices);

  bool has_left(Rank rank) const { return workers_[rank.index()].has_left; }
  // Whether all ranks have left, or are lost.
  bool is_over() const;
  const GroupGenerator& generator() const { return generator_; }

 private:
  struct Worker {
    bool is_lost = false;
    bool has_left = false;
    bool has_reported = false;        // with kResume
    std::vector<std::uint64_t> kept;  // groups of former masters that it is in, or is done with
  };
  // A group of a former master.
  struct OldGroup {
    std::vector<Rank> ranks;
    std::vector<Rank> inside;  // members that have reported to be in it
  };

  GroupMaster(GroupGenerator generator, std::uint64_t first, int workers)
      : generator_(std::move(generator)),
        first_(first),
        workers_(static_cast<std::size_t>(workers)) {}

  Status resume(Rank from, const GroupMessage& message, GroupNotices& notices);
  Status fail(Rank from, std::uint64_t number, GroupNotices& notices);
  // Breaks those groups of former masters with `rank` that some member will never join.
  void review(Rank rank, GroupNotices& notices);
  void break_old(std::uint64_t number, GroupNotices& notices);
  bool is_hopeless(std::uint64_t number, const OldGroup& group) const;

  GroupGenerator generator_;
  std::uint64_t first_;
  std::vector<Worker> workers_;
  std::map<std::uint64_t, OldGroup> old_;
};

}  // namespace dunlin::collective::groups
