// GroupAverage: training in which ranks average their models in groups that are formed anew in each
// iteration (Ripples / Prague), so that a slow rank delays few others.
//
//   dunlin::GroupAverageOptions options{.count = n};
//   DUNLIN_ASSIGN(auto average, dunlin::GroupAverage::create(job, options));    // on all ranks
//   for (std::uint64_t k = 0; k < iterations; ++k) {
//     ... compute on average.model(), calling progress() now and then ...
//     DUNLIN_TRY(average.run(k));
//   }
//   DUNLIN_TRY(average.finish(timeout));
//
// Groups: a static schedule is known to all ranks. For the other sources, one of the ranks runs a
// service in its progress(), so each rank should call progress() while it computes. If a rank is
// put into a group while it computes, the group is reduced in the rank's next average, and the
// other members wait for it.
//
// The model may be read and written between averages, and moves with each: ask model() again.
//
// Deaths: under a static schedule, an average fails with kPeerDead, which names the rank. Otherwise
// training goes on with the survivors: an average that fails is given up, and the rank asks for
// another group. Any other error is final for this rank.
//
// The end: a rank that has left is in no more groups. It goes on serving the others until all have
// left, which is what finish() waits for. Owner thread of the job only. Destroy it when all ranks
// are done with theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <dunlin/job.h>

namespace dunlin {

enum class GroupSource : std::uint8_t {
  kStatic,    // a schedule, without communication; for ranks of equal speed
  kRandom,    // random groups
  kBuffered,  // random groups, kept for members that still compute
  kSmart,     // groups of ranks that are in no group, except those far behind the rank that asks
};

// The same on all ranks.
struct GroupAverageOptions {
  std::string name = "world";  // distinguishes the objects of one job
  std::size_t count = 0;       // floats in a model
  // The ranks that take part, in a job that processes join. None: all ranks of the job, which a
  // static schedule needs.
  JobMembers members{};
  GroupSource source = GroupSource::kSmart;
  int group_size = 3;  // at least 2; groups have no more members than there are ranks
  // kSmart: when a rank asks for a group, ranks that are this many iterations or more behind it are
  // left out; at least 1.
  std::uint64_t slowdown_threshold = 4;
  // The ranks are numbered host by host, and each host has this many of them. Groups within hosts
  // and between hosts alternate. 0: each rank counts as a host.
  int ranks_per_host = 0;
  std::uint64_t seed = 1;
  // The number of the GPU in this process (CUDA) in whose memory the model is; empty: host memory.
  // Either all ranks have a GPU or none has. Work on the model has to be complete before start().
  std::optional<int> gpu{};
};

struct GroupAverageStatistics {
  std::uint64_t iterations = 0;
  std::uint64_t groups = 0;    // averaged with other ranks
  std::uint64_t members = 0;   // of these groups, summed up
  std::uint64_t alone = 0;     // times that this rank was told to go on without others
  std::uint64_t failures = 0;  // groups that were given up
  Duration waited{};           // from start() to the end of the average
};

class GroupAverage {
 public:
  // Not collective. The ranks connect later, in their first calls.
  static Result<GroupAverage> create(Job& job, const GroupAverageOptions& options);

  GroupAverage(GroupAverage&&) noexcept;
  GroupAverage& operator=(GroupAverage&&) noexcept;
  ~GroupAverage();

  // Zeros at first, but undefined on a GPU. The model must not be touched while an average is in
  // progress.
  std::span<float> model();

  // Averages after `iteration`, which grows; returns when this rank may compute the next one.
  // Blocks for Job::deadline(); after that the average goes on.
  Status run(std::uint64_t iteration);
  // leave(), then waits until all ranks have left.
  Status finish(Duration timeout);

  // The same without blocking: call start() or leave(), and then test() until it returns anything
  // but busy.
  Status start(std::uint64_t iteration);
  Status leave();
  Status test();
  Status wait(Duration timeout);
  void progress();

  GroupAverageStatistics statistics() const;

 private:
  friend struct Internal;
  struct Impl;
  explicit GroupAverage(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin
