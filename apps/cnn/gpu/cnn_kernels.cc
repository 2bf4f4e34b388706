#include "apps/cnn/gpu/cnn_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "apps/cnn/gpu/product.h"

// The fatbin, and whether there is one: in a file that the build makes, or in absent.cc.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" const unsigned char dunlin_cnn_kernels[];
extern "C" const bool dunlin_has_cnn_kernels;
// NOLINTEND(readability-identifier-naming)

namespace dunlin::cnn::gpu {
namespace {

// Blocks per multiprocessor that kernels over elements are divided among: as many as run at the
// same time (2048 threads).
constexpr unsigned kBlocksPerProcessor = 8;

// Blocks per multiprocessor that the sum of a gradient is split for, and the fewest pixels of a
// part: below, the sum of the parts would cost more than it brings.
constexpr unsigned kSplitBlocksPerProcessor = 2;
constexpr unsigned kLeastSplit = 256;

// Which of kTileRows suits a problem: the smallest that has its rows in one tile, else the largest.
unsigned tile_of(unsigned rows) {
  unsigned tile = 0;
  while (tile + 1 < std::size(kTileRows) && kTileRows[tile] < rows) ++tile;
  return tile;
}

}  // namespace

Result<std::unique_ptr<CnnKernels>> CnnKernels::load(GpuDriver& driver, int device) {
  std::unique_ptr<CnnKernels> kernels(new CnnKernels);
  auto module = driver.load_module(device, dunlin_cnn_kernels);
  if (!module && !dunlin_has_cnn_kernels) {
    return Status(Code::kUnavailable,
                  "this build of Dunlin has no kernels for GPUs: nvcc was missing (Meson's option "
                  "cuda)");
  }
  DUNLIN_TRY(module.status());
  kernels->module_ = std::move(module).value();
  const int processors = driver.devices()[static_cast<std::size_t>(device)].processors;
  kernels->processors_ = static_cast<unsigned>(std::max(processors, 1));
#define DUNLIN_FIND(name) DUNLIN_TRY(kernels->find(#name, kernels->name##_))
  DUNLIN_FIND(convolution);
  DUNLIN_FIND(convolution_input);
  DUNLIN_FIND(convolution_weight);
  DUNLIN_FIND(linear);
  DUNLIN_FIND(linear_input);
  DUNLIN_FIND(linear_weight);
  DUNLIN_FIND(sum_parts);
  DUNLIN_FIND(channel_sum);
  DUNLIN_FIND(batch_norm);
  DUNLIN_FIND(batch_norm_gradient);
  DUNLIN_FIND(relu);
  DUNLIN_FIND(relu_gradient);
  DUNLIN_FIND(max_pool);
  DUNLIN_FIND(max_pool_gradient);
  DUNLIN_FIND(shortcut);
  DUNLIN_FIND(shortcut_gradient);
  DUNLIN_FIND(mean);
  DUNLIN_FIND(mean_gradient);
  DUNLIN_FIND(loss);
#undef DUNLIN_FIND
  return kernels;
}

Status CnnKernels::find(const char* name, GpuFunction& function) const {
  DUNLIN_ASSIGN(function, module_->find(fmt::format("dunlin_cnn_{}", name).c_str()));
  return Status::ok();
}

Status CnnKernels::find(const char* name, Product& product) const {
  for (std::size_t tile = 0; tile < std::size(kTileRows); ++tile) {
    DUNLIN_TRY(find(fmt::format("{}_{}", name, kTileRows[tile]).c_str(), product.functions[tile]));
  }
  return Status::ok();
}

template <typename Problem, typename Arguments>
Status CnnKernels::start(GpuStream& stream, const Product& product,
                         const Arguments& arguments) const {
  const Problem problem{arguments};
  const unsigned tile = tile_of(problem.m());
  const GpuGrid grid{product_blocks(problem, kTileRows[tile]), kThreads};
  return stream.launch(product.functions[tile], grid, &arguments);
}

template <typename Arguments>
Status CnnKernels::start(GpuStream& stream, GpuFunction function, const Arguments& arguments,
                         std::uint32_t count) const {
  const unsigned wanted = (count + kThreads - 1) / kThreads;
  const GpuGrid grid{std::clamp(wanted, 1U, processors_ * kBlocksPerProcessor), kThreads};
  return stream.launch(function, grid, &arguments);
}

std::uint32_t CnnKernels::splits(const ConvolutionArguments& arguments) const {
  ConvolutionArguments whole = arguments;
  whole.splits = 1;
  const ConvolutionWeight problem{whole};
  const unsigned blocks = product_blocks(problem, kTileRows[tile_of(problem.m())]);
  const unsigned most = std::max(1U, problem.k() / kLeastSplit);
  return std::clamp(processors_ * kSplitBlocksPerProcessor / blocks, 1U, most);
}

Status CnnKernels::convolution(GpuStream& stream, const ConvolutionArguments& arguments) const {
  return start<Convolution>(stream, convolution_, arguments);
}
Status CnnKernels::convolution_input(GpuStream& stream,
                                     const ConvolutionArguments& arguments) const {
  return start<ConvolutionInput>(stream, convolution_input_, arguments);
}
Status CnnKernels::convolution_weight(GpuStream& stream,
                                      const ConvolutionArguments& arguments) const {
  return start<ConvolutionWeight>(stream, convolution_weight_, arguments);
}
Status CnnKernels::linear(GpuStream& stream, const LinearArguments& arguments) const {
  return start<Linear>(stream, linear_, arguments);
}
Status CnnKernels::linear_input(GpuStream& stream, const LinearArguments& arguments) const {
  return start<LinearInput>(stream, linear_input_, arguments);
}
Status CnnKernels::linear_weight(GpuStream& stream, const LinearArguments& arguments) const {
  return start<LinearWeight>(stream, linear_weight_, arguments);
}
Status CnnKernels::sum_parts(GpuStream& stream, const SumArguments& arguments) const {
  return start(stream, sum_parts_, arguments, arguments.count);
}
Status CnnKernels::channel_sum(GpuStream& stream, const ChannelSumArguments& arguments) const {
  return stream.launch(channel_sum_, {arguments.shape.channels, kThreads}, &arguments);
}
Status CnnKernels::batch_norm(GpuStream& stream, const BatchNormArguments& arguments) const {
  return stream.launch(batch_norm_, {arguments.shape.channels, kThreads}, &arguments);
}
Status CnnKernels::batch_norm_gradient(GpuStream& stream,
                                       const BatchNormGradientArguments& arguments) const {
  return stream.launch(batch_norm_gradient_, {arguments.shape.channels, kThreads}, &arguments);
}
Status CnnKernels::relu(GpuStream& stream, const ReluArguments& arguments) const {
  return start(stream, relu_, arguments, arguments.count);
}
Status CnnKernels::relu_gradient(GpuStream& stream, const ReluArguments& arguments) const {
  return start(stream, relu_gradient_, arguments, arguments.count);
}
Status CnnKernels::max_pool(GpuStream& stream, const PoolArguments& arguments) const {
  return start(stream, max_pool_, arguments, arguments.outputs());
}
Status CnnKernels::max_pool_gradient(GpuStream& stream, const PoolArguments& arguments) const {
  return start(stream, max_pool_gradient_, arguments, arguments.outputs());
}
Status CnnKernels::shortcut(GpuStream& stream, const ShortcutArguments& arguments) const {
  return start(stream, shortcut_, arguments, arguments.output_shape.count());
}
Status CnnKernels::shortcut_gradient(GpuStream& stream, const ShortcutArguments& arguments) const {
  return start(stream, shortcut_gradient_, arguments, arguments.kept_shape.count());
}
Status CnnKernels::mean(GpuStream& stream, const MeanArguments& arguments) const {
  return start(stream, mean_, arguments, arguments.planes());
}
Status CnnKernels::mean_gradient(GpuStream& stream, const MeanArguments& arguments) const {
  return start(stream, mean_gradient_, arguments, arguments.shape.count());
}
Status CnnKernels::loss(GpuStream& stream, const LossArguments& arguments) const {
  return stream.launch(loss_, {1, kThreads}, &arguments);
}

}  // namespace dunlin::cnn::gpu
