#include "collectives/schedule/gpu_compute.h"

namespace dunlin::collective {

Result<std::unique_ptr<GpuCompute>> GpuCompute::create(transport::Fabric& fabric, GpuDriver& driver,
                                                       std::shared_ptr<const GpuKernels> kernels) {
  DUNLIN_ASSIGN(auto stream, driver.create_stream(kernels->device()));
  return std::unique_ptr<GpuCompute>(new GpuCompute(fabric, std::move(kernels), std::move(stream)));
}

GpuCompute::~GpuCompute() {
  settle();
}

void GpuCompute::settle() {
  if (!in_progress_) return;
  const TimePoint deadline = fabric_.clock().now() + fabric_.config().deadline;
  (void)await(*stream_, fabric_.clock(), deadline, "a reduction");
  in_progress_.reset();
}

template <typename Launch>
Status GpuCompute::run(const Launch& launch) {
  if (!in_progress_) {
    DUNLIN_TRY(launch());
    in_progress_.emplace(fabric_);
  }
  Status status = stream_->poll();
  if (status.is_busy()) return status;
  in_progress_.reset();
  return status;
}

Status GpuCompute::run(Reduction reduction, std::span<const std::byte* const> inputs,
                       std::span<std::byte* const> targets, std::size_t count,
                       std::size_t divisor) {
  return run([&] { return kernels_->reduce(*stream_, reduction, inputs, targets, count, divisor); })
      .with_context("a reduction on a GPU");
}

Status GpuCompute::weighted_average(DataType type, const std::byte* own, std::byte* model,
                                    std::size_t count, double self_weight,
                                    std::span<const std::byte* const> inputs,
                                    std::span<const double> weights) {
  return run([&] {
           return kernels_->weighted_average(*stream_, type, own, model, count, self_weight, inputs,
                                             weights);
         })
      .with_context("an average on a GPU");
}

Status GpuCompute::sgd(SgdStep step, float* parameters, const float* gradient, float* velocity,
                       std::size_t count) {
  return run([&] { return kernels_->sgd(*stream_, step, parameters, gradient, velocity, count); })
      .with_context("a step of SGD on a GPU");
}

bool GpuCompute::is_idle() {
  if (in_progress_ && !stream_->poll().is_busy()) in_progress_.reset();
  return !in_progress_;
}

}  // namespace dunlin::collective
