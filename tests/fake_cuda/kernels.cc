#include "tests/fake_cuda/kernels.h"

#include <iterator>
#include <memory>

#include "collectives/kernels/gpu/kernel_list.h"

namespace dunlin::testing {

namespace gpu = collective::gpu;

namespace {

// The memory that a launch uses, which stays while it is held, and the first error.
struct Uses {
  FakeMemory& memory;
  const gpu::Extent& extent;
  std::size_t element;
  std::vector<std::shared_ptr<FakePages>> pages;
  cuda::Code code = cuda::kSuccess;

  template <typename Pointer>
  void translate(Pointer& pointer) {
    const auto address = reinterpret_cast<cuda::Address>(pointer);
    if (extent.count == 0) return;
    const FakeAllocation found = memory.find(address, extent.count * element);
    if (found.pages == nullptr) {
      code = kIllegalAddress;
      return;
    }
    if (extent.vectors > 0 && (address + extent.first * element) % gpu::kVectorBytes != 0)
      code = kMisaligned;
    pointer = reinterpret_cast<Pointer>(
        found.pages->contents() +
        (address - reinterpret_cast<cuda::Address>(found.pages->address())));
    pages.push_back(found.pages);
  }
};

void translate(gpu::ReduceArguments& arguments, Uses& uses) {
  for (std::uint32_t k = 0; k < arguments.input_count; ++k) uses.translate(arguments.inputs[k]);
  for (std::uint32_t t = 0; t < arguments.target_count; ++t) uses.translate(arguments.targets[t]);
}

void translate(gpu::AverageArguments& arguments, Uses& uses) {
  for (std::uint32_t k = 0; k < arguments.input_count; ++k) uses.translate(arguments.inputs[k]);
  uses.translate(arguments.own);
  uses.translate(arguments.model);
}

void translate(gpu::SgdArguments& arguments, Uses& uses) {
  uses.translate(arguments.parameters);
  uses.translate(arguments.gradient);
  if (arguments.velocity != nullptr) uses.translate(arguments.velocity);
}

template <typename Arguments, typename Body>
cuda::Code prepare(FakeMemory& memory, const void* argument, FakeGrid grid,
                   std::function<void()>* run) {
  const std::uint64_t threads = std::uint64_t{grid.blocks} * grid.threads;
  auto copy = std::make_shared<Arguments>(*static_cast<const Arguments*>(argument));
  Uses uses{memory, copy->extent, sizeof(typename Body::Stored), {}};
  translate(*copy, uses);
  *run = [copy, threads, pages = std::move(uses.pages)] {
    for (std::uint64_t thread = 0; thread < threads; ++thread)
      gpu::for_elements<typename Body::Stored>(copy->extent, thread, threads, Body{*copy});
  };
  return uses.code;
}

}  // namespace

namespace gpu_bodies {
using namespace collective::gpu;  // NOLINT: the lists name its classes

#define FAKE_REDUCE(name, element, op, is_signed) \
  {"dunlin_" #name, prepare<ReduceArguments, ReduceBody<element, op, is_signed>>},
#define FAKE_AVERAGE(name, element) \
  {"dunlin_" #name, prepare<AverageArguments, AverageBody<element>>},
constexpr FakeKernel kKernels[] = {DUNLIN_GPU_REDUCES(FAKE_REDUCE) DUNLIN_GPU_AVERAGES(
    FAKE_AVERAGE){"dunlin_sgd", prepare<SgdArguments, SgdBody>}};

}  // namespace gpu_bodies

const FakeKernel* find_kernel(std::string_view name) {
  const std::span<const FakeKernel> lists[] = {gpu_bodies::kKernels, cnn_kernels()};
  for (const auto& list : lists) {
    for (const FakeKernel& kernel : list) {
      if (kernel.name == name) return &kernel;
    }
  }
  return nullptr;
}

}  // namespace dunlin::testing
