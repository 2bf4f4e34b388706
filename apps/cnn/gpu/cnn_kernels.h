// CnnKernels: the kernels of this folder on a GPU. A call starts one on a stream and returns; the
// memory that its arguments name belongs to the device and stays valid until the kernel is
// complete. Any thread, if each uses a stream of its own.
#pragma once

#include <memory>

#include "apps/cnn/gpu/arguments.h"
#include "runtime/gpu/driver.h"

namespace dunlin::cnn::gpu {

class CnnKernels {
 public:
  // `driver` outlives the result. Returns kUnavailable if this build has no kernels, because there
  // was no nvcc, or none that the device can run.
  static Result<std::unique_ptr<CnnKernels>> load(GpuDriver& driver, int device);

  // Into how many parts to split the sum over all pixels that the gradient of the weights is, so
  // that all multiprocessors have something to do.
  std::uint32_t splits(const ConvolutionArguments& arguments) const;

  Status convolution(GpuStream& stream, const ConvolutionArguments& arguments) const;
  Status convolution_input(GpuStream& stream, const ConvolutionArguments& arguments) const;
  Status convolution_weight(GpuStream& stream, const ConvolutionArguments& arguments) const;
  Status linear(GpuStream& stream, const LinearArguments& arguments) const;
  Status linear_input(GpuStream& stream, const LinearArguments& arguments) const;
  Status linear_weight(GpuStream& stream, const LinearArguments& arguments) const;
  Status sum_parts(GpuStream& stream, const SumArguments& arguments) const;
  Status channel_sum(GpuStream& stream, const ChannelSumArguments& arguments) const;
  Status batch_norm(GpuStream& stream, const BatchNormArguments& arguments) const;
  Status batch_norm_gradient(GpuStream& stream, const BatchNormGradientArguments& arguments) const;
  Status relu(GpuStream& stream, const ReluArguments& arguments) const;
  Status relu_gradient(GpuStream& stream, const ReluArguments& arguments) const;
  Status max_pool(GpuStream& stream, const PoolArguments& arguments) const;
  Status max_pool_gradient(GpuStream& stream, const PoolArguments& arguments) const;
  Status shortcut(GpuStream& stream, const ShortcutArguments& arguments) const;
  Status shortcut_gradient(GpuStream& stream, const ShortcutArguments& arguments) const;
  Status mean(GpuStream& stream, const MeanArguments& arguments) const;
  Status mean_gradient(GpuStream& stream, const MeanArguments& arguments) const;
  Status loss(GpuStream& stream, const LossArguments& arguments) const;

 private:
  // The kernels of a product, by the rows of their tiles (kTileRows).
  struct Product {
    GpuFunction functions[3];
  };

  CnnKernels() = default;
  Status find(const char* name, GpuFunction& function) const;
  Status find(const char* name, Product& product) const;
  template <typename Problem, typename Arguments>
  Status start(GpuStream& stream, const Product& product, const Arguments& arguments) const;
  // A kernel that divides `count` elements among its threads.
  template <typename Arguments>
  Status start(GpuStream& stream, GpuFunction function, const Arguments& arguments,
               std::uint32_t count) const;

  unsigned processors_ = 1;
  std::unique_ptr<GpuModule> module_;
  Product convolution_, convolution_input_, convolution_weight_;
  Product linear_, linear_input_, linear_weight_;
  GpuFunction sum_parts_, channel_sum_, batch_norm_, batch_norm_gradient_, relu_, relu_gradient_;
  GpuFunction max_pool_, max_pool_gradient_, shortcut_, shortcut_gradient_, mean_, mean_gradient_;
  GpuFunction loss_;
};

}  // namespace dunlin::cnn::gpu
