// GroupAverage: a worker's synchronization by groups (partial/group_average.h) as part of the
// runtime, for all ranks.
//
// Any thread. Groups are served, and deaths survived, by the background thread or whoever waits,
// also after leave(), until all ranks have left. It lasts until the runtime's shutdown(); every
// call after that is kClosed. The runtime outlives its use.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "collectives/bindings/runtime.h"
#include "collectives/partial/group_average.h"

namespace dunlin::binding {

class GroupAverage {
 public:
  struct Options {
    std::string name;
    std::size_t count = 0;  // floats in a model
    collective::GroupSource source = collective::GroupSource::kSmart;
    // The layout of one worker stands for the job's hosts, where all have as many ranks, which
    // follow one another; otherwise for as many nodes as ranks. Groups have no more members than
    // there are ranks.
    collective::GroupOptions groups;
  };

  // Collective over all ranks, with the same options. `mistake`: what this rank's caller knows to
  // be wrong with its options. It is told to all, which is why nobody returns before this.
  static Result<std::shared_ptr<GroupAverage>> create(Runtime& runtime, Options options,
                                                      const Runtime::Interrupt& interrupt,
                                                      Status mistake = {});

  const Options& options() const { return options_; }

  // The worker has computed `iteration`, which goes up (none: one more than the last that was
  // started, from 0 on); the operation is over when it may compute
  // again. `model`: `count` floats, the operation's until it is over, which then are the average;
  // after an error they are what they were. Null: averages what is in model(). kInvalidArgument:
  // before the last has ended, out of order, or after leave().
  Result<std::shared_ptr<Operation>> start(std::optional<std::uint64_t> iteration, float* model);
  // The same, and waits for the deadline. `unfinished`: as Runtime::run().
  Status run(std::optional<std::uint64_t> iteration, float* model,
             const Runtime::Interrupt& interrupt, std::shared_ptr<Operation>* unfinished);
  // What is averaged without copying: zeros at first, and somewhere else after each average. Not to
  // be touched while one is under way.
  Result<std::span<float>> model();

  // This worker is in no more groups. Returns at once; whoever has left may leave again.
  Status leave();
  // All ranks that are still there have left. Of a static source, nobody knows: never.
  Result<bool> is_over();

  Result<collective::GroupAverageStatistics> statistics();
  // The rank that serves groups; of a static source none, Rank().
  Result<Rank> master();

 private:
  class Body;
  class Average;

  GroupAverage(Runtime& runtime, Options options)
      : runtime_(runtime), options_(std::move(options)) {}
  Status build(const Runtime::Interrupt& interrupt, Status mistake);
  Runtime::Make maker(std::optional<std::uint64_t> iteration, float* model) const;
  // `use(average)`, under the lock.
  template <typename Use>
  Status with_average(Use&& use);

  Runtime& runtime_;
  Options options_;
  std::shared_ptr<Body> body_;
};

}  // namespace dunlin::binding
