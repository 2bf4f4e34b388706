// GroupService: the group generator as a service of the job (Ripples / Prague, section 5). Every
// rank has one of these objects. The master's runs the generator, and all others ask it.
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
// GroupAverage does all of this, and the reduce. Messages travel on control lanes (mailbox.h). An
// ask and its answer are one round trip. `done` has no answer, and only the leader's is sent.
//
// The master is the lowest member that is present. When it is gone, each rank learns so from its
// peer table and turns to the next rank, without asking any other. It reports the group that it is
// in, repeats the ask or the failure that it waits on, and ignores what still arrives from the
// former master. Ranks may do so at different times: messages to a master that doesn't know yet
// that it is one wait in its mailbox. Any number of ranks may die, also at once, since the new
// master needs nothing from the former one (groups/master.h says why that is safe, groups/numbers.h
// where its numbers come from). As dead ranks stay dead, the rank of the master only grows. If the
// peer tables of two ranks never agree on a death, these ranks wait for each other up to the
// callers' deadlines, whose errors name them. All this needs the bootstrap: if its coordinator runs
// in rank 0 (under torchrun or mpirun), rank 0's death ends the job.
//
// A rank also has to call progress() while it computes, and after leave() until is_over(), since
// others may need it as the master. Every wait of the library does so, too, but a rank does not
// become the master there. A rank that ends its process earlier is taken for dead, which
// does no harm if it has left. Calling progress() a little longer, until the job's last barrier,
// helps ranks that had not heard of the end when the master died.
//
// Errors. An error of progress() is returned by all later calls, and this rank can't go on.
// kInvalidArgument: the options of another rank differ, or the call is impossible; kCorrupted: an
// impossible message; kClosed: other ranks took this one for dead. The master survives impossible
// messages: it refuses them, and their sender gets the error.
//
// A state machine. Nothing blocks, except for round trips to the bootstrap when it connects to a
// rank or becomes the master. Owner thread only. Destroy it when all ranks are done with theirs,
// before the fabric.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/groups/generator.h"
#include "transports/fabric.h"

namespace dunlin::collective {

namespace groups {
class GroupMaster;
class GroupNumbers;
class Mailboxes;
struct GroupMessage;
}  // namespace groups

// The same on all ranks.
struct GroupServiceOptions {
  std::string name = "world";  // tells those of a job apart
  GroupOptions groups;         // the layout's workers are the ranks of the job
  std::uint64_t agreed = 0;    // a value of the user that has to be the same on all ranks
  // The ranks that take part, ascending. To the generator, the others are gone. Empty: all ranks.
  std::vector<Rank> members{};
};

class GroupService {
 public:
  // This is not collective, as ranks meet later. kInvalidArgument: wrong options, or a layout whose
  // number of workers is not that of the job's ranks.
  static Result<std::unique_ptr<GroupService>> create(transport::Fabric& fabric,
                                                      GroupServiceOptions options);
  ~GroupService();
  GroupService(const GroupService&) = delete;
  GroupService& operator=(const GroupService&) = delete;

  // This rank has computed `iteration`, which is above that of its last ask, and wants its groups.
  Status ask(std::uint64_t iteration);
  // The next notice, if there is one: a group to join, which is newer than all before, or that the
  // present group is broken. In that case abort its reduce; the next group comes without asking.
  std::optional<GroupNotice> poll();
  // The reduce of the present group has succeeded. Every member calls this.
  Status done(std::uint64_t number);
  // The reduce of the present group has failed. poll() then reports that the group is broken.
  Status fail(std::uint64_t number);
  // This rank, which computes, will ask no more.
  Status leave();

  // Moves everything on. Never returns kBusy.
  Status progress();

  // Whether this rank may compute: it waits for no group, and is in none.
  bool is_computing() const { return phase_ == Phase::kComputing; }
  // Whether all ranks that are present have left, and no rank needs this one.
  bool is_over() const { return is_over_; }
  // Whether peers need this rank's progress(), though its service may be over.
  bool needs_progress() const;
  Rank master() const { return master_rank_; }
  // Whether progress() has turned to the present master.
  bool is_up_to_date() const { return seen_ == fabric_.peers().version(); }
  // How often this rank has seen the master change.
  std::uint64_t changes() const { return changes_; }
  // The peers that this rank waits for, and for what. Ranks that are gone are left out.
  std::vector<transport::Awaited> awaited() const;
  // The one of them that it has waited for longest, if that is known. Does not allocate.
  Rank blocker() const;
  // Null on ranks other than the master.
  const GroupGenerator* generator() const;

 private:
  enum class Phase : std::uint8_t {
    kComputing,
    kAsking,
    kInside,   // in the group of present_
    kFailing,  // has reported a failure, and waits for the notice
    kLeaving,
  };

  GroupService(transport::Fabric& fabric, GroupServiceOptions options);
  void advance();
  // Whether the rank is a member, and present.
  bool takes_part(Rank rank) const;
  // The lowest rank that does.
  Rank lowest() const;
  // Called in all waits of this rank. Leaves to progress() what asks the bootstrap.
  void serve_peers();
  Status step();
  // Checks which ranks are gone, and which one is the master now.
  Status look();
  Status turn_to(Rank master);
  Status become_master();

  // Workers call these:
  void say(groups::GroupMessage message);
  void say_ask();
  void say_done(std::uint64_t number);
  void say_leave();
  Status listen();
  Status take(groups::GroupMessage message);
  Status take_notice(const groups::GroupMessage& message);
  Status check_present(std::uint64_t number, const char* what) const;

  // The master calls these:
  Status serve();
  Status hear(Rank from, const Result<groups::GroupMessage>& message);
  Status refuse(Rank rank, const Status& why);
  Status tell(Rank rank, const groups::GroupMessage& message);
  Status deliver(const GroupNotices& notices);
  Status look_for_end();

  transport::Fabric& fabric_;
  GroupServiceOptions options_;
  std::unique_ptr<groups::Mailboxes> mailboxes_;
  Status error_;
  std::uint64_t seen_ = ~std::uint64_t{0};  // version of the peer table

  Phase phase_ = Phase::kComputing;
  bool is_over_ = false;
  std::uint64_t iteration_ = 0;
  bool has_asked_ = false;  // at any time
  std::uint64_t joined_ = 0;
  std::uint64_t last_done_ = 0;
  std::deque<std::uint64_t>
      done_;             // the last groups of several members that this rank is done with
  GroupNotice present_;  // the notice to join the last group
  Rank present_from_;    // the master that sent it
  Rank master_rank_;
  std::uint64_t changes_ = 0;
  std::deque<GroupNotice> inbox_;                // from the master, not yet returned by poll()
  std::vector<groups::GroupMessage> to_master_;  // not yet sent, or handled if this is the master

  std::unique_ptr<groups::GroupMaster> master_;  // null: another rank is the master
  std::unique_ptr<groups::GroupNumbers> numbers_;
  std::vector<bool> is_reported_;  // by rank: reported to master_ as lost
  bool has_told_end_ = false;
  bool is_inside_ = false;                       // in step(), which the task must not enter again
  std::optional<transport::Fabric::Task> task_;  // calls serve_peers()
};

}  // namespace dunlin::collective
