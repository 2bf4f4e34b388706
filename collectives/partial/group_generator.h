// GroupGenerator: which workers reduce together, and in which order (Ripples / Prague, sections 4.1
// and 5): the decisions of the central group generator, and nothing else: no threads, no messages,
// no clock. A service hands in what workers say and sends what comes out.
//
// What a worker says, and what that costs:
//   ask()   "I have computed iteration k": once per iteration, answered by a group. It says in
//           passing which groups are done, so that there is one round trip per iteration.
//   done()  "this group's reduce is over": only the group's leader, one way; nobody waits for it.
//           It lets others be grouped with the members while those compute.
//   fail()  "this group's reduce went wrong", as a peer died under it.
// and lose() when a worker is gone.
//
// What a worker is told (GroupNotice), in the order in which it must be told it:
//   join    reduce with this group; if `then_compute`, go on with the next iteration afterwards.
//           A group of one needs no reduce, and nobody tells that it is done.
//   broken  this group will not be reduced. Whoever is done with it, or has heard so before,
//           ignores that; the others drop it at once, keep their model as it was before, and if
//           `ask_again`, ask again for the same iteration. It may come behind notices to join later
//           groups, and is heeded before these.
// A worker reduces its groups one by one, in the order of the notices; one whose number isn't above
// that of its last one is a repetition, and ignored.
//
// Order. All groups are in one total order, that of their sequence numbers. A worker's queue (the
// paper's group buffer) is the part of it that has the worker in it, and a worker reduces from the
// front of its queue only. So groups that share a worker never run at the same time, and there is
// no deadlock: of the first group in the total order, every member has it in front, and gets to it
// when it has computed.
//
// Policies (group_policy.h).
//   random    every ask makes a group of the worker and group_size - 1 others, whatever these do. A
//             group is given out when all its members' locks are free, that is, when it is in front
//             of all their queues; until then it is pending. A worker reduces what it was drafted
//             to before its own group.
//   buffered  an ask takes the first group of the worker's buffer, and makes one as the random
//             policy only where there is none. A worker reduces one group per iteration, and waits
//             in the reduce, not here.
//   smart     as buffered, but where there is none, a global division makes groups of all workers
//             with empty buffers that are not too far behind.
//
// Deterministic: the same calls give the same notices, from the seed on. Owner thread only. Works
// on any number of workers. A call that makes no group costs the members of the groups that it
// touches, times their queues; one that makes any, of whichever policy, the number of workers.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "collectives/partial/group.h"
#include "collectives/partial/group_policy.h"
#include "runtime/status.h"

namespace dunlin::collective {

struct GroupNotice {
  enum class Kind : std::uint8_t { kJoin, kBroken };

  Kind kind = Kind::kJoin;
  Rank to;
  Group group;
  bool then_compute = false;  // of kJoin
  bool ask_again = false;     // of kBroken
  bool operator==(const GroupNotice&) const = default;
};
// Calls append to it.
using GroupNotices = std::vector<GroupNotice>;

class GroupGenerator {
 public:
  // Options that can't work are kInvalidArgument, with what is wrong with them. `first` is the
  // first group's sequence number, at least 1: above those of another generator that it follows.
  static Result<GroupGenerator> make(const GroupOptions& options, std::uint64_t first = 1);

  // A worker has computed `iteration` (from anywhere, going up with each) and wants a group;
  // `last_done` is the largest sequence number of its groups that are over, 0 if none is. Asking
  // again for the same iteration gives the same answer, or, when that group is over already, one
  // that the worker ignores as it is not newer. Only where that group was broken after the worker
  // was done with it, a repetition is taken for another ask, and the worker told of a group early:
  // it takes it as the answer to its next ask. kPeerDead: the worker was lost. kOutOfRange: no
  // such worker. kInvalidArgument: an iteration or a last_done that can't be.
  Status ask(Rank rank, std::uint64_t iteration, std::uint64_t last_done, GroupNotices& notices);
  // A member says that a group's reduce is over at all members. Of a group that is over or broken
  // already, it means nothing. kInvalidArgument: not a member, or not all members were told.
  Status done(Rank rank, std::uint64_t sequence, GroupNotices& notices);
  // A member's reduce failed. All members that don't know of its end are told that it is broken,
  // the one that says so always. Errors as of done().
  Status fail(Rank rank, std::uint64_t sequence, GroupNotices& notices);
  // A worker is gone for good: it died, or has ended its training. Groups that nobody has been told
  // of lose it, and vanish if a single worker is left; others with it are broken, but for those up
  // to `last_done`, with which it was done: their reduce goes on to its end at the others. Saying
  // it again means nothing. kOutOfRange. kInvalidArgument: a last_done that can't be.
  Status lose(Rank rank, GroupNotices& notices, std::uint64_t last_done = 0);

  // For checks and reports.
  const GroupOptions& options() const { return options_; }
  bool is_alive(Rank rank) const { return workers_[rank.index()].is_alive; }
  // Waits for an answer: its group is pending.
  bool is_waiting(Rank rank) const { return workers_[rank.index()].state == State::kWaiting; }
  // Ascending sequence numbers; the first was told to the worker if has_told().
  const std::deque<std::uint64_t>& queue_of(Rank rank) const {
    return workers_[rank.index()].queue;
  }
  bool has_told(Rank rank) const;
  // Null when it is over, broken or was never made.
  const Group* find(std::uint64_t sequence) const;
  // The sequence number of the last group that was made: with `first` 1, how many there were.
  std::uint64_t groups_made() const { return next_sequence_ - 1; }

 private:
  enum class State : std::uint8_t {
    kComputing,  // nothing was asked, or what was told is over
    kWaiting,    // has asked, and was not told yet of the group after which it computes
    kServed,     // was told of it
  };
  struct Worker {
    bool is_alive = true;
    State state = State::kComputing;
    bool is_answered = false;     // this iteration's ask was, by a group that is over
    std::uint32_t alone = 0;      // times in a row that its answer was to stay alone
    std::uint64_t iteration = 0;  // the paper's counter
    std::uint64_t told = 0;       // the last group that it was told of
    std::uint64_t own = 0;        // the group that its ask has made, of the random policy
    std::deque<std::uint64_t> queue;
  };
  struct Record {
    Group group;
    std::uint32_t left = 0;  // members that have it in their queues
    bool is_told = false;    // to anybody
  };

  explicit GroupGenerator(const GroupOptions& options);

  Worker& worker(Rank rank) { return workers_[rank.index()]; }
  const Worker& worker(Rank rank) const { return workers_[rank.index()]; }
  Status check_rank(Rank rank) const;
  Status check_alive(Rank rank) const;
  Status check_member(Rank rank, std::uint64_t sequence) const;
  Status check_last_done(Rank rank, std::uint64_t last_done) const;
  // The worker has those up to `last_done` no longer.
  void leave_up_to(Rank rank, std::uint64_t last_done, std::vector<Rank>& concerned);
  // The worker has a group no longer, wherever in its queue.
  void leave(Rank rank, std::uint64_t sequence);
  void break_group(std::uint64_t sequence, GroupNotices& notices, std::vector<Rank>& concerned);
  // Adds whom the front of a worker's queue may concern, now that it has changed.
  void add_front(Rank rank, std::vector<Rank>& concerned) const;
  // Makes groups for those who wait without, and tells all what can be told now.
  void serve(std::vector<Rank> concerned, GroupNotices& notices);
  bool needs_group(Rank rank) const;
  void make_groups(Rank rank, GroupNotices& notices, std::vector<Rank>& concerned);
  void tell(Rank rank, GroupNotices& notices);
  void join(Rank rank, GroupNotices& notices);
  bool is_ready(const Record& record) const;

  GroupOptions options_;
  GroupRandom random_;
  std::uint64_t next_sequence_ = 1;
  std::vector<Worker> workers_;
  std::map<std::uint64_t, Record> groups_;
};

}  // namespace dunlin::collective
