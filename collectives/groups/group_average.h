// GroupAverage: the synchronization of one worker by groups, as a training program uses it (Ripples
// / Prague). After each iteration the worker's model is averaged with those of the groups that it
// is in.
//
//   auto average = GroupAverage::create(fabric, options);       // on all ranks
//   for (k = 0; k < iterations; ++k) {
//     ... compute on average->model(), calling progress() now and then ...
//     average->start(k);
//     while (average->test().is_busy()) ...;                     // or run(k)
//   }
//   average->finish(timeout);                                    // leave(), until test() is ok
//
// A state machine. Only wait(), run() and finish() block, and the round trips to the bootstrap of
// PartialAllReduce and GroupService. progress() has to be called while the worker computes, as this
// rank may be the master, which serves groups to all. Owner thread only.
//
// The model may be read and written between averages. Each average moves it to other memory, so
// that a failed average leaves the model as it was. With options.partial.gpu, the model is memory
// of that GPU. Work on it has to be complete before start(), and an average is complete when test()
// is.
//
// Groups. All ranks know a static schedule, so it needs no service. The other groups are made by
// the group generator (groups/service.h): start() asks for the groups of this iteration, and the
// worker goes from one to the next until it is told to compute. A worker is not disturbed while it
// computes: a group that it is drawn into meanwhile is reduced at its next start(), and the other
// members wait until then.
//
// Deaths. Under a static schedule, test() returns kPeerDead, which names the rank. Otherwise
// training goes on without ranks that die, the master included: an average that fails is aborted,
// and another group is asked for. When a member dies in a group, some members may have got the
// average and others not. Each failure costs the memory of two models, which stays allocated to the
// end, as other ranks may still write to it (partial_all_reduce.h). After kMostFailures in a row
// for each rank, which is more than deaths account for, the last error is returned. Groups that are
// given up at once, because this rank knows that a member is dead, do not count.
//
// The end. A worker that has left is in no more groups, and the others go on without it. It still
// serves them while it is the master, and may become the master. So test() is busy, and progress()
// has to be called, until all have left. Destroy it when all ranks are done with theirs (after a
// barrier, say; call progress() up to there), before the fabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/groups/service.h"
#include "collectives/groups/static_schedule.h"
#include "collectives/partial/partial_all_reduce.h"
#include "transports/fabric.h"

namespace dunlin::collective {

enum class GroupSource : std::uint8_t { kStatic, kRandom, kBuffered, kSmart };
inline constexpr GroupSource kGroupSources[] = {GroupSource::kStatic, GroupSource::kRandom,
                                                GroupSource::kBuffered, GroupSource::kSmart};
const char* to_string(GroupSource source);
Result<GroupSource> parse_group_source(std::string_view name);

// The same on all ranks.
struct GroupAverageOptions {
  std::string name = "world";  // tells those of a job apart
  std::size_t count = 0;       // floats in a model
  GroupSource source = GroupSource::kSmart;
  // The layout's workers are the job's ranks. The policy is that of `source`.
  GroupOptions groups;
  // The ranks that take part, ascending; none is in a group with another rank. Empty: all ranks of
  // the job. A static schedule needs all of them.
  std::vector<Rank> members{};
  // The options of the reduces, whose `name` the group average has, too.
  PartialOptions partial;
};

struct GroupAverageStatistics {
  std::uint64_t iterations = 0;  // synchronized, alone or in groups
  std::uint64_t groups = 0;      // reduced with other ranks
  std::uint64_t members = 0;     // of these groups in all, this rank included
  double models_sent = 0;        // a ring of k members sends 2 (k - 1) / k models per reduce
  std::uint64_t alone = 0;       // how often the rank was told to go on alone
  std::uint64_t failures = 0;    // groups that failed
  std::uint64_t changes = 0;     // of the master
  Duration waited{};             // from start() to the end, in all
};

class GroupAverage {
 public:
  // How many failures in a row are accepted for each rank of the job.
  static constexpr std::uint64_t kMostFailures = 8;

  // This is not collective, as ranks meet later. kInvalidArgument: wrong options.
  static Result<std::unique_ptr<GroupAverage>> create(transport::Fabric& fabric,
                                                      GroupAverageOptions options);
  GroupAverage(const GroupAverage&) = delete;
  GroupAverage& operator=(const GroupAverage&) = delete;

  // Zeros at first, but undefined on a GPU. It must not be touched from start() until test() isn't
  // busy. Call model() again then, as it has moved.
  std::span<float> model();
  std::span<const float> model() const { return {data(model_), options_.count}; }

  // The worker has computed `iteration`, which grows with each call. After kInvalidArgument nothing
  // was begun: the last average has not ended, or the iteration is out of order.
  Status start(std::uint64_t iteration);
  // Returns the error that start(iteration) would return now without having begun anything.
  Status check_start(std::uint64_t iteration) const;
  // This worker has ended its training.
  Status leave();
  // kBusy until start() or leave() is over; ok when the worker may compute, or when no rank needs
  // it any more. Later calls return an error again, and this rank can't go on. kNotFound: nothing
  // is in progress.
  Status test();
  // test() until it isn't busy. kDeadlineExceeded names the rank that was waited for; what was
  // started goes on.
  Status wait(Duration timeout);
  // start(), and wait() for at most config.deadline.
  Status run(std::uint64_t iteration);
  // leave() and wait().
  Status finish(Duration timeout);
  // Moves everything on. An error is returned by the next test().
  void progress();

  std::vector<transport::Awaited> awaited() const;
  // One of them, without an allocation.
  Rank blocker() const;
  GroupAverageStatistics statistics() const;
  // The group whose reduce this rank is in, or null.
  const Group* group() const { return group_ ? &*group_ : nullptr; }
  // Null under a static schedule.
  const GroupService* service() const { return service_.get(); }

 private:
  enum class State : std::uint8_t { kComputing, kAveraging, kLeaving };
  using Memory = std::span<std::byte>;

  GroupAverage(transport::Fabric& fabric, GroupAverageOptions options);
  static float* data(Memory memory) { return reinterpret_cast<float*>(memory.data()); }
  Status allocate();
  Status step();
  void start_task() {
    task_.emplace(fabric_, [this] { serve_peers(); });
  }
  // Called in all waits of this rank. Leaves to test() what fails.
  void serve_peers();
  // Does at most one step of an average: begins a group, or ends one.
  Status average();
  Status join(const Group& group);
  Status begin_reduce(const Group& group);
  // kBusy: the average goes on.
  Status end_reduce(Status outcome);
  // The group has failed, for the given reason or because a member is dead: asks for another one.
  Status fail(Status outcome);
  Status give_up_group();
  // Moves the model to memory that members of a failed group can't reach.
  Status move_model();

  transport::Fabric& fabric_;
  GroupAverageOptions options_;
  std::unique_ptr<PartialAllReduce> partial_;
  std::unique_ptr<GroupService> service_;   // null under a static schedule
  std::optional<StaticSchedule> schedule_;  // under a static schedule only
  Memory model_;
  Memory result_;
  Status error_;

  State state_ = State::kComputing;
  std::optional<std::uint64_t> iteration_;  // the last one
  TimePoint started_{};
  std::optional<Group> group_;
  std::optional<PartialRequest> request_;
  std::optional<Status> failure_;  // of the request, which serve_peers() has seen end
  bool is_averaged_ = false;       // the average has ended in serve_peers()
  std::uint64_t failures_in_a_row_ = 0;
  GroupAverageStatistics statistics_;
  bool is_inside_ = false;                       // in a call that the task must not enter again
  std::optional<transport::Fabric::Task> task_;  // calls serve_peers()
};

}  // namespace dunlin::collective
