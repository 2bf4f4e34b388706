// GroupGenerator: decides which workers reduce together, and in which order (Ripples / Prague,
// sections 4.1 and 5). It is the central group generator without threads, messages or a clock: a
// service (service.h) passes in what workers say, and sends what comes out.
//
// What a worker says:
//   ask()   "I have computed iteration k": once per iteration, answered by a group. It also says
//           which groups are done, so that there is one round trip per iteration.
//   done()  "This group's reduce is over": sent by the group's leader only, without an answer. It
//           lets the members be grouped with others while they compute.
//   fail()  "This group's reduce failed", since a peer died in it.
// lose() says that a worker is gone.
//
// What a worker is told (GroupNotice). Notices have to reach it in their order.
//   join    Reduce with this group. If `then_compute`, go on with the next iteration afterwards. A
//           group of one needs no reduce, and done() is not called for it.
//   broken  This group will not be reduced. A worker that is done with the group, or was told so
//           before, ignores the notice. Other members stop its reduce at once, keep their model as
//           it was before it, and if `ask_again`, ask again for the same iteration. The notice may
//           come after notices to join later groups, and is handled before these.
// A worker reduces its groups one by one, in the order of the notices. It ignores a group whose
// number isn't above that of its last one, as it is a repetition.
//
// Order. All groups are in one total order, that of their sequence numbers. A worker's queue (the
// paper's group buffer) holds the groups that it is in, and a worker reduces only the group at the
// front of its queue. So groups that share a worker never run at the same time. There is no
// deadlock either: the first group of the total order is at the front of the queues of all its
// members, and each of them gets to it once it has computed.
//
// Policies (groups/policy.h).
//   random    Every ask makes a group of the worker and group_size - 1 others, whatever these do.
//             The members are told of a group when it is at the front of all their queues, which is
//             when the paper's locks are free; until then it is pending. A worker reduces the
//             groups that others have drawn it into before its own group.
//   buffered  An ask takes the first group of the worker's queue. Only if there is none, it makes
//             one as the random policy does. A worker reduces one group per iteration, and waits in
//             the reduce, not here.
//   smart     As buffered, but if there is no group, a global division makes groups of all workers
//             with empty queues that are not too far behind.
//
// Deterministic: with the same seed, the same calls give the same notices. Owner thread only. Works
// for any number of workers. The cost of a call that makes no group grows with the number of
// members of the groups that it touches, times the length of their queues. The cost of a call that
// makes groups grows with the number of workers, for every policy.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "collectives/groups/group.h"
#include "collectives/groups/policy.h"
#include "runtime/status.h"

namespace dunlin::collective {

struct GroupNotice {
  enum class Kind : std::uint8_t { kJoin, kBroken };

  Kind kind = Kind::kJoin;
  Rank to;
  Group group;
  bool then_compute = false;  // kJoin only
  bool ask_again = false;     // kBroken only
  bool operator==(const GroupNotice&) const = default;
};
// Calls append to it.
using GroupNotices = std::vector<GroupNotice>;

class GroupGenerator {
 public:
  // kInvalidArgument says what is wrong with the options. `first` is the first group's sequence
  // number, at least 1, and above those of a generator that this one succeeds.
  static Result<GroupGenerator> make(const GroupOptions& options, std::uint64_t first = 1);

  // A worker has computed `iteration` and wants a group. Iterations begin with any number, and grow
  // with each ask. `last_done` is the largest sequence number of its groups that are over, or 0.
  // Asking again for the same iteration gives the same answer; if that group is over already, the
  // worker ignores the answer, as it is not newer. There is one exception: if that group was broken
  // after the worker was done with it, the repetition counts as another ask. The worker is told of
  // a group early then, and takes it as the answer to its next ask. kPeerDead: the worker was lost.
  // kOutOfRange: there is no such worker. kInvalidArgument: an impossible iteration or last_done.
  Status ask(Rank rank, std::uint64_t iteration, std::uint64_t last_done, GroupNotices& notices);
  // A member says that a group's reduce is over at all members. It has no effect for a group that
  // is over or broken. kInvalidArgument: the rank is no member, or not all members were told of the
  // group.
  Status done(Rank rank, std::uint64_t sequence, GroupNotices& notices);
  // A member's reduce failed. All members that don't know of the group's end are told that it is
  // broken; the member that says so is told in any case. Returns the errors of done().
  Status fail(Rank rank, std::uint64_t sequence, GroupNotices& notices);
  // A worker is gone for good: it died, or has ended its training. It is removed from groups that
  // no worker was told of, which are dropped if a single worker is left. Its other groups are
  // broken, except those up to `last_done`, with which it was done: their reduce goes on at the
  // other members. Repeating the call has no effect. kOutOfRange: there is no such worker.
  // kInvalidArgument: an impossible last_done.
  Status lose(Rank rank, GroupNotices& notices, std::uint64_t last_done = 0);

  // Checks and reports read these.
  const GroupOptions& options() const { return options_; }
  bool is_alive(Rank rank) const { return workers_[rank.index()].is_alive; }
  // Whether the worker waits for an answer, since its group is pending.
  bool is_waiting(Rank rank) const { return workers_[rank.index()].state == State::kWaiting; }
  // Ascending sequence numbers. The worker was told of the first one if has_told().
  const std::deque<std::uint64_t>& queue_of(Rank rank) const {
    return workers_[rank.index()].queue;
  }
  bool has_told(Rank rank) const;
  // Null if the group is over, broken or was never made.
  const Group* find(std::uint64_t sequence) const;
  // The sequence number of the last group that was made, which is their number if `first` was 1.
  std::uint64_t groups_made() const { return next_sequence_ - 1; }

 private:
  enum class State : std::uint8_t {
    kComputing,  // has not asked, or the group that it was told of is over
    kWaiting,    // has asked, and was not told of the group after which it computes
    kServed,     // was told of that group
  };
  struct Worker {
    bool is_alive = true;
    State state = State::kComputing;
    bool is_answered = false;     // this iteration's ask was answered by a group that is over
    std::uint32_t alone = 0;      // how often in a row it was left alone
    std::uint64_t iteration = 0;  // the paper's counter
    std::uint64_t told = 0;       // the last group that it was told of
    std::uint64_t own = 0;        // random policy: the group that its ask has made
    std::deque<std::uint64_t> queue;
  };
  struct Record {
    Group group;
    std::uint32_t left = 0;  // how many members have it in their queues
    bool is_told = false;    // some member was told of it
  };

  explicit GroupGenerator(const GroupOptions& options);

  Worker& worker(Rank rank) { return workers_[rank.index()]; }
  const Worker& worker(Rank rank) const { return workers_[rank.index()]; }
  Status check_rank(Rank rank) const;
  Status check_alive(Rank rank) const;
  Status check_member(Rank rank, std::uint64_t sequence) const;
  Status check_last_done(Rank rank, std::uint64_t last_done) const;
  // Removes the groups up to `last_done` from the worker's queue.
  void leave_up_to(Rank rank, std::uint64_t last_done, std::vector<Rank>& concerned);
  // Removes a group from the worker's queue.
  void leave(Rank rank, std::uint64_t sequence);
  void break_group(std::uint64_t sequence, GroupNotices& notices, std::vector<Rank>& concerned);
  // Adds the workers that a change at the front of a worker's queue may concern.
  void add_front(Rank rank, std::vector<Rank>& concerned) const;
  // Makes groups for workers that wait and have none, and adds all notices that are due.
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
