#include "collectives/training/methods/model_compute.h"

#include <algorithm>

#include "runtime/gpu/cuda_driver.h"

namespace dunlin::training {

Result<std::unique_ptr<ModelCompute>> ModelCompute::create(transport::Fabric& fabric,
                                                           const MethodOptions& options) {
  std::unique_ptr<ModelCompute> compute(new ModelCompute(fabric, options));
  if (options.gpu) {
    DUNLIN_TRY(compute->use_gpu());
  } else {
    compute->sgd_ = std::make_unique<Sgd>(options.sgd, options.count);
  }
  return compute;
}

Status ModelCompute::use_gpu() {
  DUNLIN_ASSIGN(driver_, load_cuda_driver());
  DUNLIN_ASSIGN(auto kernels, collective::GpuKernels::load(driver_, *options_.gpu));
  DUNLIN_ASSIGN(gpu_, collective::GpuCompute::create(fabric_, *driver_, std::move(kernels)));
  if (options_.sgd.momentum == 0) return Status::ok();
  DUNLIN_ASSIGN(velocity_, allocate(options_.count));
  return Status::ok();
}

Result<ModelVector> ModelCompute::allocate(std::size_t count) {
  if (driver_ == nullptr) return ModelVector(count);
  return ModelVector::allocate_on_gpu(driver_, *options_.gpu, count, fabric_.clock(),
                                      fabric_.config().deadline);
}

Status ModelCompute::step(std::span<float> parameters, std::span<const float> gradient,
                          float learning_rate) {
  if (sgd_) {
    sgd_->step(parameters, gradient, learning_rate);
    return Status::ok();
  }
  float* const velocity = velocity_.elements().empty() ? nullptr : velocity_.elements().data();
  return gpu_->sgd({learning_rate, options_.sgd.momentum, options_.sgd.weight_decay},
                   parameters.data(), gradient.data(), velocity, parameters.size());
}

Status ModelCompute::copy(std::span<const float> from, std::span<float> to) {
  if (sgd_) {
    std::ranges::copy(from, to.begin());
    return Status::ok();
  }
  // A reduction of a single input.
  const auto* const input = reinterpret_cast<const std::byte*>(from.data());
  auto* const target = reinterpret_cast<std::byte*>(to.data());
  return gpu_->run({collective::DataType::kFloat32, collective::ReduceOp::kSum},
                   std::span(&input, 1), std::span(&target, 1), from.size(), 1);
}

}  // namespace dunlin::training
