// Redistribution: the state with which a worker continues a run that another number of workers
// saved. It continues as if the run had always had its present number of workers, with models from
// the saved ones. Owner thread only.
#pragma once

#include <cstdint>
#include <string>

#include "apps/cnn/checkpoint.h"
#include "apps/vector_mean.h"

namespace dunlin::cnn {

// The iteration that has gone `epochs` times through the images, or of the multiples of `step` the
// nearest one.
std::uint64_t iteration_after(double epochs, std::uint64_t per_epoch, std::uint64_t step);

// The mean of the states that fall to the worker (checkpoint_search.h): of the models, velocities,
// running statistics and progress. A step of SGD with momentum is linear in the model, the velocity
// and the gradient, so that the mean velocity belongs to the mean model.
class Redistribution {
 public:
  // Every state passes check_resumable() with the first one.
  void add(const Checkpoint& saved);
  // Needs one added state at least.
  Checkpoint state(std::uint32_t rank, std::uint32_t ranks, std::uint64_t run,
                   std::uint64_t iteration) const;

 private:
  std::string settings_;
  double loss_ = 0;
  double accuracy_ = 0;
  double count_ = 0;
  VectorMean parameters_;
  VectorMean velocity_;
  VectorMean statistics_;
};

}  // namespace dunlin::cnn
