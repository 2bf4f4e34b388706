// GroupMaster: what the rank that serves groups knows (group_service.h): the generator, who has
// left, and what workers are still at of a former master's groups. No messages, no clock: what
// workers say goes in, what they are to be told comes out. Owner thread only.
//
// It begins with nothing: no state is handed from master to master. What that costs, and why it is
// safe:
//   - Groups that a worker was told of by a former master, and is still in, it reports when it
//     turns to this one (kResume). A group goes on to its end if all its members have come to it.
//     It is broken if one of them is dead, or turned to this master without having come: that one
//     will not hear of the group any more. Until all members have said so, those who have come
//     wait, as they do for any member that computes. So nobody waits for ever, and no reduce that
//     all have begun is given up.
//   - Groups that nobody in them was told of are forgotten, and harm nobody: workers ask again, and
//     are given new ones. Counters of iterations come with the asks; who hasn't asked yet counts as
//     far behind until it does.
//   - Numbers are above all former ones (GroupNumbers in group_service.h), so all groups are still
//     in one total order.
// All that is lost with a master are some averages; models stay as they are. The state
// at a successor would save these, at the price of a message for every call, and of waiting for its
// receipt before any notice goes out; and it would be lost if both died.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "collectives/partial/group_generator.h"
#include "collectives/partial/group_message.h"

namespace dunlin::collective::partial {

class GroupMaster {
 public:
  // Numbers its groups from `first` on; those below were a former master's. Errors as
  // GroupGenerator::make().
  static Result<GroupMaster> make(const GroupOptions& options, std::uint64_t first);

  // What a worker says, in the order in which it says it. kPeerDead: it was reported dead, or has
  // left. Other errors: it can't say that; nothing has happened, and the worker should be told.
  Status hear(Rank from, const GroupMessage& message, GroupNotices& notices);
  // The rank is dead, or gone without having said anything.
  Status lose(Rank rank, GroupNotices& notices);

  bool has_left(Rank rank) const { return workers_[rank.index()].has_left; }
  // All ranks have left, or are lost.
  bool is_over() const;
  const GroupGenerator& generator() const { return generator_; }

 private:
  struct Worker {
    bool is_lost = false;
    bool has_left = false;
    std::optional<std::uint64_t> joined;  // the last group of a former master's, if it said so
  };
  // A former master's group.
  struct OldGroup {
    std::vector<Rank> ranks;
    std::vector<Rank> inside;  // who said that they are in it
  };

  GroupMaster(GroupGenerator generator, std::uint64_t first, int workers)
      : generator_(std::move(generator)),
        first_(first),
        workers_(static_cast<std::size_t>(workers)) {}

  Status resume(Rank from, const GroupMessage& message, GroupNotices& notices);
  Status fail(Rank from, std::uint64_t number, GroupNotices& notices);
  // Breaks the former masters' groups that have `rank` and that somebody will never come to.
  void review(Rank rank, GroupNotices& notices);
  void break_old(std::uint64_t number, GroupNotices& notices);
  bool is_hopeless(std::uint64_t number, const OldGroup& group) const;

  GroupGenerator generator_;
  std::uint64_t first_;
  std::vector<Worker> workers_;
  std::map<std::uint64_t, OldGroup> old_;
};

}  // namespace dunlin::collective::partial
