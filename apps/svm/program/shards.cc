#include "apps/svm/program/shards.h"

#include <chrono>
#include <utility>

#include "apps/svm/program/data.h"

namespace dunlin::svm {

Result<Shards> Shards::load(const Options& options, Shard shard) {
  DUNLIN_ASSIGN(Dataset data, load_shard(options, shard));
  return Shards(options, shard, std::move(data));
}

void Shards::want(Shard shard) {
  wanted_ = shard;
  if (!next_ && wanted_ != shard_) read();
}

void Shards::read() {
  reading_ = wanted_;
  next_ = std::async(std::launch::async, [options = options_, shard = reading_] {
    return load_shard(*options, shard);
  });
}

Result<bool> Shards::refresh() {
  if (!next_ || next_->wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
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

}  // namespace dunlin::svm
