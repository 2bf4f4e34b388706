// GpuCompute: the reductions of one executor on a GPU, or averages and steps of models. Each is one
// launch, and one at a time is in progress. Its end is found by polling, so the process does not
// sleep meanwhile.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "collectives/kernels/gpu/gpu_kernels.h"
#include "collectives/schedule/executor.h"
#include "transports/fabric.h"

namespace dunlin::collective {

// Owner thread of the fabric only.
class GpuCompute final : public Compute {
 public:
  // `fabric` and `driver` outlive the result.
  static Result<std::unique_ptr<GpuCompute>> create(transport::Fabric& fabric, GpuDriver& driver,
                                                    std::shared_ptr<const GpuKernels> kernels);
  // Waits for a reduction that is in progress.
  ~GpuCompute() override;

  Status run(Reduction reduction, std::span<const std::byte* const> inputs,
             std::span<std::byte* const> targets, std::size_t count, std::size_t divisor) override;
  bool is_idle() override;
  // For config.deadline at most.
  void settle() override;
  // Does what GpuKernels::weighted_average() does. Returns kBusy until it is done: call it again
  // with the same arguments.
  Status weighted_average(DataType type, const std::byte* own, std::byte* model, std::size_t count,
                          double self_weight, std::span<const std::byte* const> inputs,
                          std::span<const double> weights);
  // Does what GpuKernels::sgd() does, likewise.
  Status sgd(SgdStep step, float* parameters, const float* gradient, float* velocity,
             std::size_t count);

 private:
  GpuCompute(transport::Fabric& fabric, std::shared_ptr<const GpuKernels> kernels,
             std::unique_ptr<GpuStream> stream)
      : fabric_(fabric), kernels_(std::move(kernels)), stream_(std::move(stream)) {}

  // Starts work with `launch`, unless it is in progress. Returns kBusy until it is done.
  template <typename Launch>
  Status run(const Launch& launch);

  transport::Fabric& fabric_;
  std::shared_ptr<const GpuKernels> kernels_;
  std::unique_ptr<GpuStream> stream_;
  std::optional<transport::Fabric::StayAwake> in_progress_;
};

}  // namespace dunlin::collective
