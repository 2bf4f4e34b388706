// The images of a run.
#pragma once

#include <optional>

#include "apps/cnn/images.h"
#include "apps/cnn/program/options.h"
#include "apps/shard.h"
#include "runtime/status.h"

namespace dunlin::cnn {

struct Data {
  std::string source;  // files, or "generated"
  std::size_t total = 0;
  int classes = 0;
  Digest digest{};  // of all training images
  Normalization normalization;
  int channels = 0;
  int height = 0;
  int width = 0;
  Images train;                // the share of this worker
  std::optional<Images> test;  // see load_test()
};

// Loads the images of a worker. A server has no share, and gets no images. kInvalidArgument if
// there are too few images for each of `most_workers` to fill a batch, or if more are to be
// generated than fit the memory of a host with `local_ranks` ranks of the job.
Result<Data> load_data(const Options& options, std::optional<Shard> share, int most_workers,
                       int local_ranks);

// Loads another share of the images, which were `total`.
Result<Images> load_share(const Options& options, std::size_t total, Shard share);

// Adds the test images, if the options name some. For the rank that reports.
Status load_test(const Options& options, Data& data);

}  // namespace dunlin::cnn
