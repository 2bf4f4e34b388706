// Feed: the batches of this worker, from its share of the training images. When the workers have
// changed, the images are shared out anew (apps/shards.h). Owner thread only.
#pragma once

#include <cstdint>
#include <optional>

#include "apps/cnn/batches.h"
#include "apps/cnn/program/data.h"
#include "apps/shards.h"

namespace dunlin::cnn {

class Feed {
 public:
  // Takes data.train, which is that share. `worker` is the number of this worker, for the order of
  // its images. Borrows `options` and `data`.
  Feed(const Options& options, Data& data, Shard share, int worker);

  // The batches that each of so many workers has of the images in an epoch.
  std::uint64_t per_epoch(std::uint32_t workers) const;
  // The batch of an iteration. It depends on the options, the share and the number alone.
  Batch at(std::uint64_t iteration) { return batches_->at(iteration); }

  // The share is to be this one. Goes on with the former one until a thread has read it.
  void want(Shard share) { images_.want(share); }
  // Takes over a share that has been read. Logs if it could not be read.
  void refresh();

 private:
  void make_batches();

  const Options& options_;
  const Data& data_;
  int worker_;
  Shards<Images> images_;
  std::optional<Batches> batches_;  // of images_
};

}  // namespace dunlin::cnn
