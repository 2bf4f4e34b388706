// GroupAverage: one worker's synchronization by groups, what a training program uses (Ripples /
// Prague): after each iteration, its model is averaged with those of the groups that it is in.
//
//   auto average = GroupAverage::create(fabric, options);       // on all ranks
//   for (k = 0; k < iterations; ++k) {
//     ... compute on average->model(), calling progress() now and then ...
//     average->start(k);
//     while (average->test().is_busy()) ...;                     // or run(k)
//   }
//   average->finish(timeout);                                    // leave(), until test() is ok
//
// A state machine: nothing blocks but wait(), run() and finish(), and the bootstrap's round trips
// of PartialAllReduce and GroupService. progress() has to be called while the worker computes, as
// this rank may be the master, who serves groups to all. Owner thread only.
//
// The model. It may be read and written between averages, and is somewhere else after each: an
// average goes from one memory into another, so that one that fails leaves the model what it was.
//
// Where groups come from. A static schedule is known to everybody, and needs nobody's service. The
// others are made by the group generator (group_service.h): start() asks for the groups of this
// iteration, and the worker goes from one to the next until it is told to compute. Nobody is
// disturbed while it computes: a group that a worker is drafted to meanwhile is reduced at its next
// start(), and the others in it wait until then.
//
// Deaths. Under a static schedule, test() returns kPeerDead, which names the rank. Otherwise
// training goes on without any who die, the master included: an average that fails is given up, and
// another group asked for. Of a group in which somebody died, some members may have got the average
// and others not. Each failure costs the memory of two models, which stays allocated to the end, as
// others may still write to it (partial_all_reduce.h). After kMostFailures in a row, more than
// deaths account for, the last one is returned.
//
// The end. A worker that has left is in no more groups; the others go on without it. It still
// serves them as long as it is the master, and may become that: test() is busy, and progress() to
// be called, until all have left. Destroy it when all ranks are done with theirs (a barrier, say;
// call progress() up to there), before the fabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/partial/group_service.h"
#include "collectives/partial/partial_all_reduce.h"
#include "collectives/partial/static_schedule.h"
#include "transports/fabric.h"

namespace dunlin::collective {

enum class GroupSource : std::uint8_t { kStatic, kRandom, kBuffered, kSmart };
inline constexpr GroupSource kGroupSources[] = {GroupSource::kStatic, GroupSource::kRandom,
                                                GroupSource::kBuffered, GroupSource::kSmart};
const char* to_string(GroupSource source);
Result<GroupSource> parse_group_source(std::string_view name);

// The same on all ranks.
struct GroupAverageOptions {
  std::string name = "world";  // distinguishes those of one job
  std::size_t count = 0;       // floats in a model
  GroupSource source = GroupSource::kSmart;
  // Its layout has the job's ranks as workers; its policy is that of `source`.
  GroupOptions groups;
  // Of the reduces; their name is `name`.
  PartialOptions partial;
};

struct GroupAverageStatistics {
  std::uint64_t iterations = 0;  // synchronized, alone or not
  std::uint64_t groups = 0;      // reduced with others
  std::uint64_t members = 0;     // of them, this rank included
  double models_sent = 0;        // a ring's of k members sends 2 (k - 1) / k of one
  std::uint64_t alone = 0;       // times that the rank was told to go on without others
  std::uint64_t failures = 0;    // groups that were given up
  std::uint64_t changes = 0;     // of the master
  Duration waited{};             // from start() to its end
};

class GroupAverage {
 public:
  // Failures in a row, for each rank of the job.
  static constexpr std::uint64_t kMostFailures = 8;

  // Not collective: ranks meet later. kInvalidArgument: options that can't work.
  static Result<std::unique_ptr<GroupAverage>> create(transport::Fabric& fabric,
                                                      GroupAverageOptions options);
  GroupAverage(const GroupAverage&) = delete;
  GroupAverage& operator=(const GroupAverage&) = delete;

  // Zeros at first. Not to be touched from start() until test() isn't busy; then ask again where it
  // is.
  std::span<float> model();
  std::span<const float> model() const { return {data(model_), options_.count}; }

  // The worker has computed `iteration`, which goes up. kInvalidArgument: before the last has
  // ended, or out of order; nothing was begun.
  Status start(std::uint64_t iteration);
  // This worker has ended its training.
  Status leave();
  // kBusy until what was started is over: ok when the worker may compute, or when nobody needs it
  // any more. An error stays: this rank can't go on. kNotFound: nothing is under way.
  Status test();
  // test() until it isn't busy. kDeadlineExceeded says who was waited for; what was started goes
  // on.
  Status wait(Duration timeout);
  // start() and wait() for config.deadline.
  Status run(std::uint64_t iteration);
  // leave() and wait().
  Status finish(Duration timeout);
  // Moves everything on. An error is returned by the next test().
  void progress();

  std::vector<transport::Awaited> awaited() const;
  GroupAverageStatistics statistics() const;
  // The group whose reduce this rank is in; null: in none.
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
  // One step of an average, at most: a group begun, or ended.
  Status average();
  Status join(const Group& group);
  Status begin_reduce(const Group& group);
  // kBusy: the average goes on.
  Status end_reduce(Status outcome);
  Status fail(Status outcome);
  // Where members of a failed group can't reach it.
  Status move_model();

  transport::Fabric& fabric_;
  GroupAverageOptions options_;
  std::unique_ptr<PartialAllReduce> partial_;
  std::unique_ptr<GroupService> service_;   // null: static
  std::optional<StaticSchedule> schedule_;  // of static ones only
  Memory model_;
  Memory result_;
  Status error_;

  State state_ = State::kComputing;
  std::optional<std::uint64_t> iteration_;  // the last one
  TimePoint started_{};
  std::optional<Group> group_;
  std::optional<PartialRequest> request_;
  std::uint64_t failures_in_a_row_ = 0;
  GroupAverageStatistics statistics_;
};

}  // namespace dunlin::collective
