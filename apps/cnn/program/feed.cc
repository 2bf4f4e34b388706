#include "apps/cnn/program/feed.h"

#include <utility>

#include "runtime/log.h"

namespace dunlin::cnn {

Feed::Feed(const Options& options, Data& data, Shard share, int worker)
    : options_(options),
      data_(data),
      worker_(worker),
      images_([&options,
               total = data.total](Shard wanted) { return load_share(options, total, wanted); },
              share, std::move(data.train)) {
  make_batches();
}

std::uint64_t Feed::per_epoch(std::uint32_t workers) const {
  return data_.total / workers / options_.batch_size;
}

void Feed::make_batches() {
  Batches::Options batches;
  batches.size = options_.batch_size;
  batches.seed = options_.seed;
  batches.worker = worker_;
  batches.is_augmented = options_.is_augmented;
  batches_.emplace(images_.data(), data_.normalization, batches, per_epoch(images_.shard().ranks));
}

void Feed::refresh() {
  const auto has_changed = images_.refresh();
  if (!has_changed) {
    DUNLIN_WARN(
        "worker {} cannot read the images that it is to have, and keeps its former ones: {}",
        worker_, has_changed.status().message());
  } else if (*has_changed) {
    make_batches();
  }
}

}  // namespace dunlin::cnn
