// GroupAverage: a worker's synchronization by groups (collectives/groups/group_average.h) as part
// of the session, for all ranks.
//
// Threads: any. The background thread, or a waiting thread, serves the groups and handles deaths,
// also after leave(), until all ranks have left. It lasts until the session's shutdown(); later
// calls return kClosed. The session has to outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "bindings/session/model_copies.h"
#include "bindings/session/session.h"
#include "collectives/groups/group_average.h"

namespace dunlin::binding {

class GroupAverage {
 public:
  struct Options {
    std::string name;
    std::size_t count = 0;  // floats in a model
    collective::GroupSource source = collective::GroupSource::kSmart;
    // The default layout (one worker) stands for the job's hosts if all have the same number of
    // consecutive ranks, and otherwise for a host per rank. The group size is limited to the number
    // of ranks.
    collective::GroupOptions groups;
    // The GPU, by its number in this process, in whose memory all models are; empty: host memory.
    // Either all ranks have a GPU or none has.
    std::optional<int> gpu{};
  };

  // Collective over all ranks, with the same options. `mistake`: an error that this rank's caller
  // has found in its options. The call is made all the same, so that all ranks fail.
  static Result<std::shared_ptr<GroupAverage>> create(Session& session, Options options,
                                                      const Session::Interrupt& interrupt,
                                                      Status mistake = {});

  const Options& options() const { return options_; }

  // Starts an average after the worker has computed `iteration`. Iterations increase; without one,
  // it is one more than the last that was started, from 0 on. When the operation is over the worker
  // may compute again. `memory`: model and result have `count` floats. After an error the result is
  // unchanged. Null: averages what is in model(). kInvalidArgument: the last average is in
  // progress, the iteration doesn't increase, or leave() was called.
  Result<std::shared_ptr<SessionOperation>> start(std::optional<std::uint64_t> iteration,
                                                  const ModelMemory& memory);
  // start(), then waits for Config::deadline at most. `unfinished`: as for Session::run().
  Status run(std::optional<std::uint64_t> iteration, const ModelMemory& memory,
             const Session::Interrupt& interrupt, std::shared_ptr<SessionOperation>* unfinished);
  // The memory that is averaged without copying. It holds zeros at first, but is undefined on a
  // GPU, and moves with each average. kInvalidArgument while an average is in progress: it must not
  // be touched then.
  Result<std::span<float>> model();

  // This worker takes part in no more groups. Returns at once, and may be called again.
  Status leave();
  // Whether all living ranks have left. Always false with a static source, which can't tell.
  Result<bool> is_over();

  Result<collective::GroupAverageStatistics> statistics();
  // The rank that forms the groups; Rank() with a static source.
  Result<Rank> master();

 private:
  class Body;
  class Average;

  GroupAverage(Session& session, Options options)
      : session_(session), options_(std::move(options)) {}
  Status build(const Session::Interrupt& interrupt, Status mistake);
  Session::Make maker(std::optional<std::uint64_t> iteration, const ModelMemory& memory) const;
  // Calls `use(average)` under the session's lock.
  template <typename Use>
  Status with_average(Use&& use);

  Session& session_;
  Options options_;
  std::shared_ptr<Body> body_;
};

}  // namespace dunlin::binding
