// The kernels of apps/cnn/gpu, run block after block.
#include <memory>
#include <vector>

#include "apps/cnn/gpu/kernel_list.h"
#include "tests/fake_cuda/kernels.h"

namespace dunlin::testing {
namespace {

using namespace cnn::gpu;  // NOLINT: the lists name its classes

template <typename Arguments, void (*body)(const Block&, const Arguments&)>
cuda::Code prepare(FakeMemory& memory, const void* argument, FakeGrid grid,
                   std::function<void()>* run) {
  if (grid.threads != kThreads) return cuda::kInvalidValue;
  auto arguments = std::make_shared<Arguments>(*static_cast<const Arguments*>(argument));
  std::vector<std::shared_ptr<FakePages>> pages;  // stay while they are held
  cuda::Code code = cuda::kSuccess;
  arguments->each_memory([&](auto*& pointer, std::uint32_t count) {
    if (pointer == nullptr) return;
    const auto address = reinterpret_cast<cuda::Address>(pointer);
    const FakeAllocation found = memory.find(address, count * sizeof(*pointer));
    if (found.pages == nullptr) {
      code = kIllegalAddress;
      return;
    }
    pages.push_back(found.pages);
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(
        found.pages->contents() +
        (address - reinterpret_cast<cuda::Address>(found.pages->address())));
  });
  *run = [arguments, grid, held = std::move(pages)] {
    for (unsigned block = 0; block < grid.blocks; ++block) body({block, grid.blocks}, *arguments);
  };
  return code;
}

template <unsigned kRows, typename Problem, typename Arguments>
void run_product(const Block& block, const Arguments& arguments) {
  product<kRows>(block, Problem{arguments});
}

#define FAKE_PRODUCT(name, problem, type, rows) \
  {"dunlin_cnn_" #name, prepare<type, run_product<rows, problem, type>>},
#define FAKE_LAYER(name, type) {"dunlin_cnn_" #name, prepare<type, name>},
constexpr FakeKernel kKernels[] = {DUNLIN_CNN_PRODUCTS(FAKE_PRODUCT) DUNLIN_CNN_LAYERS(FAKE_LAYER)};

}  // namespace

std::span<const FakeKernel> cnn_kernels() {
  return kKernels;
}

}  // namespace dunlin::testing
