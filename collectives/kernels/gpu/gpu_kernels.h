// GpuKernels: the reductions and averages of collectives/kernels on the memory of a GPU. One launch
// reads every input once and writes every target once, whatever their number.
//
// The bits of the results are those of the CPU's kernels (reduce.h, average.h), with one exception:
// which NaN a weighted average makes of a NaN is not defined. CPUs without fused multiply-adds may
// differ in the last bits of weighted averages of float32 and float64.
//
// Calls start work on a stream and return; GpuStream::poll() tells when it is complete. The memory
// belongs to the device or was opened for it (GpuDriver::open), and stays valid until then. Any
// thread, if each uses a stream of its own.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "collectives/kernels/gpu/arguments.h"
#include "collectives/kernels/reduce.h"
#include "runtime/gpu/driver.h"

namespace dunlin::collective {

// The numbers of a step of stochastic gradient descent.
struct SgdStep {
  float learning_rate = 0;
  float momentum = 0;
  float weight_decay = 0;
};

class GpuKernels {
 public:
  // Loads the kernels on a device of the driver. Returns kUnavailable if this build has no kernels,
  // because there was no nvcc, or none that the device can run.
  static Result<std::unique_ptr<GpuKernels>> load(std::shared_ptr<GpuDriver> driver, int device);

  // Does what reduce() of reduce.h does, with at most gpu::kMostInputs inputs and gpu::kMostTargets
  // targets. Returns kInvalidArgument if there are more. The addresses are aligned to the element
  // type.
  Status reduce(GpuStream& stream, Reduction reduction, std::span<const std::byte* const> inputs,
                std::span<std::byte* const> targets, std::size_t count,
                std::size_t divisor = 1) const;
  // Does what weighted_average() of average.h does, but takes this rank's part from `own`, which
  // may be the model: model[i] = self_weight * own[i] + sum over k of weights[k] * inputs[k][i].
  // Returns kInvalidArgument for integers, which have no average, and for gpu::kMostInputs or more
  // inputs.
  Status weighted_average(GpuStream& stream, DataType type, const std::byte* own, std::byte* model,
                          std::size_t count, double self_weight,
                          std::span<const std::byte* const> inputs,
                          std::span<const double> weights) const;
  // Takes a step of `count` parameters, with the bits of training::Sgd. `velocity` is null if there
  // is no momentum, and otherwise begins with zeros.
  Status sgd(GpuStream& stream, SgdStep step, float* parameters, const float* gradient,
             float* velocity, std::size_t count) const;

  int device() const { return device_; }

 private:
  GpuKernels(std::shared_ptr<GpuDriver> driver, int device)
      : driver_(std::move(driver)), device_(device) {}
  Status find_functions();
  GpuGrid grid(const gpu::Extent& extent, std::size_t element) const;  // bytes of an element

  static constexpr std::size_t kTypeCount = 8;
  static constexpr std::size_t kOpCount = 4;  // an average is a sum

  std::shared_ptr<GpuDriver> driver_;
  int device_;
  std::unique_ptr<GpuModule> module_;
  std::array<std::array<GpuFunction, kOpCount>, kTypeCount> reduces_;  // by DataType and ReduceOp
  std::array<GpuFunction, kTypeCount> averages_;                       // none of integers
  GpuFunction sgd_;
};

// True if this build has kernels for GPUs.
bool has_gpu_kernels();

}  // namespace dunlin::collective
