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
  Images train;                // this worker's part
  std::optional<Images> test;  // on rank 0, where there are any
};

// Of worker `worker`; a server, which isn't one of the workers, gets no images. `has_test`: with
// the test images, if the options name some. kInvalidArgument as well where there are too few for
// each worker to fill a batch, or more are to be generated than fit the memory of a host that has
// `local_ranks` of the job's.
Result<Data> load_data(const Options& options, int worker, int workers, int local_ranks,
                       bool has_test);

}  // namespace dunlin::cnn
