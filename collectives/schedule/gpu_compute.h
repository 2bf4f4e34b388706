// GpuCompute: the reductions of one executor on a GPU. A reduction is one launch. Its end is found
// by polling, so the process does not sleep meanwhile.
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

 private:
  GpuCompute(transport::Fabric& fabric, std::shared_ptr<const GpuKernels> kernels,
             std::unique_ptr<GpuStream> stream)
      : fabric_(fabric), kernels_(std::move(kernels)), stream_(std::move(stream)) {}

  transport::Fabric& fabric_;
  std::shared_ptr<const GpuKernels> kernels_;
  std::unique_ptr<GpuStream> stream_;
  std::optional<transport::Fabric::StayAwake> in_progress_;
};

}  // namespace dunlin::collective
