#include "collectives/kernels/gpu/gpu_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>

#include "collectives/kernels/average.h"

// The fatbin, and whether there is one: in a file that the build makes, or in absent.cc.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" const unsigned char dunlin_gpu_kernels[];
extern "C" const bool dunlin_has_gpu_kernels;
// NOLINTEND(readability-identifier-naming)

namespace dunlin::collective {
namespace {

// Threads of a block. Kernels of this kind use few registers, so that several blocks fill a
// multiprocessor.
constexpr unsigned kThreads = 256;

// A thread takes one step in launches of up to so many blocks per multiprocessor (of an H100, 264
// MiB of each operand), and several in longer ones. Eight blocks run at the same time. If others
// begin as they end, more of the memory is busy than if the threads of eight take all steps: 2.97
// instead of 2.75 TB/s (H100, two inputs and outputs of 256 MiB).
constexpr std::uint64_t kBlocksPerProcessor = 512;

constexpr DataType kTypes[] = {DataType::kInt8,    DataType::kUint8,   DataType::kInt32,
                               DataType::kInt64,   DataType::kFloat16, DataType::kBfloat16,
                               DataType::kFloat32, DataType::kFloat64};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax};

// Makes an Extent of vectors where all addresses have the same place within a vector.
class Alignment {
 public:
  void add(const void* address) {
    const auto place = reinterpret_cast<std::uintptr_t>(address) % gpu::kVectorBytes;
    is_common_ = is_common_ && (!is_known_ || place == place_);
    place_ = place;
    is_known_ = true;
  }
  gpu::Extent extent(std::size_t count, std::size_t element) const {
    gpu::Extent extent;
    extent.count = count;
    if (!is_common_) return extent;
    extent.first = std::min(count, (gpu::kVectorBytes - place_) % gpu::kVectorBytes / element);
    extent.vectors = (count - extent.first) / (gpu::kVectorBytes / element);
    return extent;
  }

 private:
  bool is_known_ = false;
  bool is_common_ = true;
  std::uintptr_t place_ = 0;
};

Status check_numbers(std::size_t inputs, std::size_t targets) {
  if (inputs <= gpu::kMostInputs && targets <= gpu::kMostTargets) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("a reduction on a GPU has at most {} inputs and {} targets, not {} and {}",
                      gpu::kMostInputs, gpu::kMostTargets, inputs, targets)};
}

}  // namespace

bool has_gpu_kernels() {
  return dunlin_has_gpu_kernels;
}

Result<std::unique_ptr<GpuKernels>> GpuKernels::load(std::shared_ptr<GpuDriver> driver,
                                                     int device) {
  std::unique_ptr<GpuKernels> kernels(new GpuKernels(std::move(driver), device));
  auto module = kernels->driver_->load_module(device, dunlin_gpu_kernels);
  if (!module && !has_gpu_kernels()) {
    return Status(Code::kUnavailable,
                  "this build of Dunlin has no kernels for GPUs: nvcc was missing (Meson's option "
                  "cuda)");
  }
  DUNLIN_TRY(module.status());
  kernels->module_ = std::move(module).value();
  DUNLIN_TRY(kernels->find_functions());
  return kernels;
}

Status GpuKernels::find_functions() {
  for (const DataType type : kTypes) {
    const auto index = static_cast<std::size_t>(type);
    for (const ReduceOp op : kOps) {
      const std::string name = fmt::format("dunlin_reduce_{}_{}", to_string(type), to_string(op));
      DUNLIN_ASSIGN(reduces_[index][static_cast<std::size_t>(op)], module_->find(name.c_str()));
    }
    if (is_integer(type)) continue;
    const std::string name = fmt::format("dunlin_average_{}", to_string(type));
    DUNLIN_ASSIGN(averages_[index], module_->find(name.c_str()));
  }
  DUNLIN_ASSIGN(sgd_, module_->find("dunlin_sgd"));
  return Status::ok();
}

GpuGrid GpuKernels::grid(const gpu::Extent& extent, std::size_t element) const {
  const int processors = driver_->devices()[static_cast<std::size_t>(device_)].processors;
  const std::uint64_t most =
      static_cast<std::uint64_t>(std::max(processors, 1)) * kBlocksPerProcessor;
  const std::uint64_t single = extent.count - extent.vectors * (gpu::kVectorBytes / element);
  const std::uint64_t steps = std::max(extent.vectors, single);
  const std::uint64_t wanted = (steps + kThreads - 1) / kThreads;
  return {static_cast<unsigned>(std::clamp<std::uint64_t>(wanted, 1, most)), kThreads};
}

Status GpuKernels::reduce(GpuStream& stream, Reduction reduction,
                          std::span<const std::byte* const> inputs,
                          std::span<std::byte* const> targets, std::size_t count,
                          std::size_t divisor) const {
  assert(!inputs.empty() && !targets.empty() && divisor != 0);
  DUNLIN_TRY(check_numbers(inputs.size(), targets.size()));
  if (count == 0) return Status::ok();
  const bool divides = reduction.op == ReduceOp::kAverage && divisor != 1;
  if (reduction.op == ReduceOp::kAverage) reduction.op = ReduceOp::kSum;
  if (inputs.size() == 1 && !divides) {  // a copy, bit by bit
    count *= size_of(reduction.type);
    reduction = {DataType::kUint8, ReduceOp::kSum};
  }
  gpu::ReduceArguments arguments;
  Alignment alignment;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    arguments.inputs[k] = inputs[k];
    alignment.add(inputs[k]);
  }
  for (std::size_t t = 0; t < targets.size(); ++t) {
    arguments.targets[t] = targets[t];
    alignment.add(targets[t]);
  }
  arguments.extent = alignment.extent(count, size_of(reduction.type));
  arguments.input_count = static_cast<std::uint32_t>(inputs.size());
  arguments.target_count = static_cast<std::uint32_t>(targets.size());
  if (divides && std::has_single_bit(divisor) && !is_integer(reduction.type)) {
    arguments.factor = 1 / static_cast<double>(divisor);
  } else if (divides) {
    arguments.divisor = divisor;
  }
  const GpuFunction function =
      reduces_[static_cast<std::size_t>(reduction.type)][static_cast<std::size_t>(reduction.op)];
  return stream.launch(function, grid(arguments.extent, size_of(reduction.type)), &arguments);
}

Status GpuKernels::weighted_average(GpuStream& stream, DataType type, const std::byte* own,
                                    std::byte* model, std::size_t count, double self_weight,
                                    std::span<const std::byte* const> inputs,
                                    std::span<const double> weights) const {
  assert(inputs.size() == weights.size());
  if (is_integer(type))
    return {Code::kInvalidArgument, fmt::format("{} has no weighted average", to_string(type))};
  DUNLIN_TRY(check_numbers(inputs.size() + 1, 1));
  if (is_uniform(type, self_weight, weights)) {
    std::array<const std::byte*, gpu::kMostInputs> all{};
    all[0] = own;
    std::copy(inputs.begin(), inputs.end(), all.begin() + 1);
    return reduce(stream, {type, ReduceOp::kAverage}, std::span(all).first(inputs.size() + 1),
                  std::span(&model, 1), count, inputs.size() + 1);
  }
  if (count == 0) return Status::ok();
  gpu::AverageArguments arguments;
  Alignment alignment;
  alignment.add(own);
  alignment.add(model);
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    arguments.inputs[k] = inputs[k];
    arguments.weights[k] = weights[k];
    alignment.add(inputs[k]);
  }
  arguments.extent = alignment.extent(count, size_of(type));
  arguments.input_count = static_cast<std::uint32_t>(inputs.size());
  arguments.self_weight = self_weight;
  arguments.own = own;
  arguments.model = model;
  return stream.launch(averages_[static_cast<std::size_t>(type)],
                       grid(arguments.extent, size_of(type)), &arguments);
}

Status GpuKernels::sgd(GpuStream& stream, SgdStep step, float* parameters, const float* gradient,
                       float* velocity, std::size_t count) const {
  if (count == 0) return Status::ok();
  gpu::SgdArguments arguments;
  Alignment alignment;
  alignment.add(parameters);
  alignment.add(gradient);
  if (velocity != nullptr) alignment.add(velocity);
  arguments.extent = alignment.extent(count, sizeof(float));
  arguments.parameters = parameters;
  arguments.gradient = gradient;
  arguments.velocity = velocity;
  arguments.learning_rate = step.learning_rate;
  arguments.momentum = step.momentum;
  arguments.weight_decay = step.weight_decay;
  return stream.launch(sgd_, grid(arguments.extent, sizeof(float)), &arguments);
}

}  // namespace dunlin::collective
