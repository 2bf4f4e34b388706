// GroupService: the group generator as a service of the job (Ripples / Prague, section 5): every
// rank has one of these; that of the master runs the generator, all others ask it.
//
//   auto service = GroupService::create(fabric, options);
//   service->ask(iteration);
//   while (!computing) {                 // between calls of progress():
//     notice = service->poll();          // a group to join, or that the present one is broken
//     ... reduce with the group ...
//     service->done(number);             // or fail(number), and wait for what poll() says
//   }
//   service->leave();                    // at the end; progress() until is_over()
//
// GroupAverage is all of this, with the reduce. Messages are letters on control lanes (mailbox.h):
// an ask and its answer are one round trip, `done` is one way, and only the leader's travels.
//
// The master is the lowest rank that is present. When it is gone, each rank that learns so from its
// peer table turns to the next one, without asking anybody: it says what it was at, repeats the ask
// or the failure that it waits on, and ignores what the former master still said. That may be at
// different times at different ranks; letters to a master that does not know yet that it is one
// wait in its mailbox. Any number of ranks may die, at once as well: the new master needs nothing
// of the former one's (group_master.h says why that is safe, group_numbers.h where its numbers come
// from). Masters only ever follow upwards, as the dead stay dead. Ranks whose peer tables never
// agree on a death wait for one another up to the callers' deadlines, which name them. All this
// needs the bootstrap: where its coordinator lives in rank 0 (under torchrun, mpirun), rank 0's
// death ends the job.
//
// A rank has to call progress() while it computes, too, and after leave() until is_over(): others
// may need it as the master. Who ends its process earlier is taken for dead, which is no harm if it
// has left. Calling it a little longer, until the job's last barrier, helps those who hadn't heard
// of the end when the master died.
//
// Errors. What is returned by progress() stays: this rank can't go on. kInvalidArgument: another
// rank's options differ, or the call can't be; kCorrupted: a message that can't be; kClosed: others
// took this rank for dead. The master survives what others say wrong: it refuses it, and they get
// the error. A state machine; never blocks, but for round trips to the bootstrap when it meets
// somebody or becomes the master. Owner thread only. Destroy it when all ranks are done with
// theirs, before the fabric.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/partial/group_generator.h"
#include "transports/fabric.h"

namespace dunlin::collective {

namespace partial {
class GroupMaster;
class GroupNumbers;
class Mailboxes;
struct GroupMessage;
}  // namespace partial

// The same on all ranks.
struct GroupServiceOptions {
  std::string name = "world";  // distinguishes those of one job
  GroupOptions groups;         // the layout's workers are the ranks of the job
  std::uint64_t agreed = 0;    // something of the user's that has to be the same
};

class GroupService {
 public:
  // Not collective: ranks meet later. kInvalidArgument: options that can't work, or a layout of
  // more or fewer workers than the job has ranks.
  static Result<std::unique_ptr<GroupService>> create(transport::Fabric& fabric,
                                                      GroupServiceOptions options);
  ~GroupService();
  GroupService(const GroupService&) = delete;
  GroupService& operator=(const GroupService&) = delete;

  // This rank has computed `iteration`, above that of its last ask, and wants its groups.
  Status ask(std::uint64_t iteration);
  // The next thing to do, once there is one: a group to join, newer than all before, or that the
  // present one is broken. In this case drop its reduce; the next group comes without asking.
  std::optional<GroupNotice> poll();
  // The reduce of the present group is over here: at all members. Every member says so.
  Status done(std::uint64_t number);
  // The reduce of the present group failed: its end comes from poll().
  Status fail(std::uint64_t number);
  // This rank computes, and will ask no more.
  Status leave();

  // Moves everything on. Busy is never returned.
  Status progress();

  // Neither asks nor is in a group: the last one said to compute.
  bool is_computing() const { return phase_ == Phase::kComputing; }
  // All ranks that are still there have left: nobody needs this one.
  bool is_over() const { return is_over_; }
  Rank master() const { return master_rank_; }
  // How often another rank became the master, as seen from here.
  std::uint64_t changes() const { return changes_; }
  // Whom this rank waits for, and for what; only those who are present.
  std::vector<transport::Awaited> awaited() const;
  // The master's; elsewhere null.
  const GroupGenerator* generator() const;

 private:
  enum class Phase : std::uint8_t {
    kComputing,
    kAsking,
    kInside,   // of present_
    kFailing,  // has said so, and waits for the notice
    kLeaving,
  };

  GroupService(transport::Fabric& fabric, GroupServiceOptions options);
  Status step();
  // Who is gone, and who is the master now.
  Status look();
  Status turn_to(Rank master);
  Status become_master();

  // Of a worker:
  void say(partial::GroupMessage message);
  void say_ask();
  void say_leave();
  Status listen();
  Status take(partial::GroupMessage message);
  Status take_notice(const partial::GroupMessage& message);
  Status check_present(std::uint64_t number, const char* what) const;

  // Of the master:
  Status serve();
  Status hear(Rank from, const Result<partial::GroupMessage>& message);
  Status refuse(Rank rank, const Status& why);
  Status tell(Rank rank, const partial::GroupMessage& message);
  Status deliver(const GroupNotices& notices);
  Status look_for_end();

  transport::Fabric& fabric_;
  GroupServiceOptions options_;
  std::unique_ptr<partial::Mailboxes> mailboxes_;
  Status error_;
  std::uint64_t seen_ = ~std::uint64_t{0};  // version of the peer table

  Phase phase_ = Phase::kComputing;
  bool is_over_ = false;
  std::uint64_t iteration_ = 0;
  bool has_asked_ = false;  // ever
  std::uint64_t joined_ = 0;
  std::uint64_t last_done_ = 0;
  GroupNotice present_;  // the join of the last group
  Rank present_from_;    // the master that told us to
  Rank master_rank_;
  std::uint64_t changes_ = 0;
  std::deque<GroupNotice> inbox_;                 // of the master, not yet taken by poll()
  std::vector<partial::GroupMessage> to_master_;  // not yet in its mailbox, or heard if we are it

  std::unique_ptr<partial::GroupMaster> master_;  // null: another rank is
  std::unique_ptr<partial::GroupNumbers> numbers_;
  std::vector<bool> is_reported_;  // to master_, as lost
  bool has_told_end_ = false;
};

}  // namespace dunlin::collective
