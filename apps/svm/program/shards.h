// Shards: which part of the training set each worker trains on, and the parts that this one has.
//
// The set has one shard for each rank that started the job, whatever becomes of the ranks. Each
// worker has a shard of its own. A newcomer's is that which the fewest workers have. A shard whose
// last worker is gone is adopted by another one, which trains on both from then on, so that no row
// is lost. It gives the shard back when a newcomer has it.
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <vector>

#include "apps/svm/dataset.h"
#include "apps/svm/program/options.h"

namespace dunlin::svm {

// The shards of one worker.
struct Holding {
  std::uint32_t own = 0;
  std::vector<std::uint32_t> adopted;  // ascending

  bool operator==(const Holding&) const = default;
};

// What each worker is to have, given what each of them has had: every shard has a worker, and none
// is adopted that somebody has as its own. The same on all workers, which pass the same holdings in
// the same order. Pure function.
std::vector<Holding> share_out(std::uint32_t shards, std::vector<Holding> holdings);

// The shards of this worker. Owner thread only, except for the thread that loads.
class Shards {
 public:
  // Reads shard `own` of `count`.
  static Result<Shards> load(const Options& options, std::uint32_t own, std::uint32_t count);

  // What to train on. refresh() invalidates it.
  const Dataset& data() const { return joined_ ? *joined_ : own_; }
  const Holding& holding() const { return holding_; }

  // The worker is to have these adopted shards. A thread reads them, and the worker goes on with
  // data() as it is until refresh().
  void adopt(std::vector<std::uint32_t> adopted);
  // Takes over what has been read. Returns whether data() has changed. An error if a shard could
  // not be read; it is left out then.
  Result<bool> refresh();

 private:
  explicit Shards(const Options& options) : options_(&options) {}

  const Options* options_;
  std::uint32_t count_ = 1;
  Holding holding_;
  Dataset own_;
  std::optional<Dataset> joined_;  // own_ and the adopted shards, if there are any
  // The adopted shards, which are being read, and for which holding.
  std::optional<std::future<Result<std::vector<Dataset>>>> loading_;
  std::vector<std::uint32_t> loaded_for_;
};

}  // namespace dunlin::svm
