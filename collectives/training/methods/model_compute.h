// ModelCompute: what a rank computes with its model beside the gradient: steps of SGD and copies,
// in host memory or, with MethodOptions::gpu, in the memory of a GPU. Owner thread of the fabric
// only.
#pragma once

#include <memory>
#include <span>

#include "collectives/schedule/gpu_compute.h"
#include "collectives/training/method.h"
#include "collectives/training/model_vector.h"

namespace dunlin::training {

class ModelCompute {
 public:
  // kUnavailable without the GPU of options.gpu, its driver, or kernels for it.
  static Result<std::unique_ptr<ModelCompute>> create(transport::Fabric& fabric,
                                                      const MethodOptions& options);

  Result<ModelVector> allocate(std::size_t count);

  // The next two return kBusy while a GPU works: call them again with the same arguments.
  Status step(std::span<float> parameters, std::span<const float> gradient, float learning_rate);
  Status copy(std::span<const float> from, std::span<float> to);
  // The state of the optimizer, which begins with zeros. Empty without momentum.
  std::span<float> velocity() { return sgd_ ? sgd_->velocity() : velocity_.elements(); }

 private:
  ModelCompute(transport::Fabric& fabric, const MethodOptions& options)
      : fabric_(fabric), options_(options) {}
  Status use_gpu();

  transport::Fabric& fabric_;
  const MethodOptions options_;
  std::unique_ptr<Sgd> sgd_;  // in host memory
  // On a GPU:
  std::shared_ptr<GpuDriver> driver_;
  ModelVector velocity_;
  std::unique_ptr<collective::GpuCompute> gpu_;
};

}  // namespace dunlin::training
