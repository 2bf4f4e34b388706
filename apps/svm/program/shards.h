// Shards: the rows of the training set on which this worker trains.
//
// Worker i of n has the rows i, i + n, i + 2n, ... of the set, so that each row counts alike. When
// workers join, leave or die, the rows are shared out anew: a thread reads those that this worker
// has from then on, and the worker goes on with its former ones meanwhile. So no row is lost, and
// nobody waits. Owner thread only.
#pragma once

#include <future>
#include <optional>

#include "apps/svm/dataset.h"
#include "apps/svm/program/options.h"

namespace dunlin::svm {

class Shards {
 public:
  // Reads the rows of `shard`. `options` has to outlive the object.
  static Result<Shards> load(const Options& options, Shard shard);

  // What to train on. refresh() invalidates it.
  const Dataset& data() const { return data_; }

  // The rows are to be those of `shard`.
  void want(Shard shard);
  // Takes over rows that have been read. Returns whether data() has changed. An error, once, if
  // they could not be read: the former ones stay.
  Result<bool> refresh();

 private:
  Shards(const Options& options, Shard shard, Dataset data)
      : options_(&options), shard_(shard), wanted_(shard), data_(std::move(data)) {}
  void read();

  const Options* options_;
  Shard shard_;    // of data_
  Shard wanted_;   // the last one that was asked for
  Shard reading_;  // what is being read
  Dataset data_;
  std::optional<std::future<Result<Dataset>>> next_;
};

}  // namespace dunlin::svm
