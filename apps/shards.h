// Shards: the part of the training set on which this worker trains, in a program whose workers
// change.
//
// Worker i of n has the elements i, i + n, i + 2n, ... of the set, so that each element counts
// alike. When workers join, leave or die, the elements are shared out anew: a thread reads those
// that this worker has from then on, and the worker goes on with its former ones meanwhile. So no
// element is lost, and nobody waits. Owner thread only.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <utility>

#include "apps/shard.h"
#include "runtime/status.h"

namespace dunlin {

template <typename Data>
class Shards {
 public:
  // Reads a shard. A thread calls it while the owner does something else.
  using Read = std::function<Result<Data>(Shard)>;

  // Reads the first shard, and keeps `read`.
  static Result<Shards> load(Read read, Shard shard) {
    DUNLIN_ASSIGN(Data data, read(shard));
    return Shards(std::move(read), shard, std::move(data));
  }
  // The same where that shard has been read already.
  Shards(Read read, Shard shard, Data data)
      : read_(std::move(read)), shard_(shard), wanted_(shard), data_(std::move(data)) {}

  // What to train on. refresh() invalidates it.
  const Data& data() const { return data_; }
  Shard shard() const { return shard_; }

  // The elements are to be those of `shard`.
  void want(Shard shard) {
    wanted_ = shard;
    if (!next_ && wanted_ != shard_) start();
  }

  // Takes over what has been read. Returns whether data() has changed. An error, once, if it could
  // not be read: the former elements stay.
  Result<bool> refresh() {
    if (!next_ || next_->wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      return false;
    auto read = next_->get();
    next_.reset();
    if (reading_ != wanted_) {  // the workers have changed again meanwhile
      want(wanted_);
      return false;
    }
    shard_ = reading_;  // also if it has failed, so that it is not tried again
    DUNLIN_ASSIGN(data_, std::move(read));
    return true;
  }

 private:
  void start() {
    reading_ = wanted_;
    next_ =
        std::async(std::launch::async, [read = read_, shard = reading_] { return read(shard); });
  }

  Read read_;
  Shard shard_;    // of data_
  Shard wanted_;   // the last one that was asked for
  Shard reading_;  // what is being read
  Data data_;
  std::optional<std::future<Result<Data>>> next_;
};

}  // namespace dunlin
