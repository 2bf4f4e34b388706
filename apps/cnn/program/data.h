// The images of a run.
#pragma once

#include <optional>

#include "apps/cnn/images.h"
#include "apps/cnn/program/options.h"
#include "runtime/status.h"

namespace dunlin::cnn {

struct Data {
  std::string source;  // files, or "generated"
  std::size_t total = 0;
  int classes = 0;
  Digest digest{};  // of all training images
  Normalization normalization;
  Images train;                // the part of this worker
  std::optional<Images> test;  // on rank 0, if there are any
};

// Loads the images of worker `worker`. A server is not one of the workers and gets no images.
// `has_test`: also load the test images, if the options name some. kInvalidArgument if there are
// too few images for each worker to fill a batch, or if more are to be generated than fit the
// memory of a host with `local_ranks` ranks of the job.
Result<Data> load_data(const Options& options, int worker, int workers, int local_ranks,
                       bool has_test);

}  // namespace dunlin::cnn
