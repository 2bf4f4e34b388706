// GpuNetwork, on a GPU or on the stand-in for its driver, beside LibTorch on the CPU: losses,
// gradients and statistics agree, layer by layer and for whole networks.
#include <gtest/gtest.h>

#include "apps/cnn/torch_network.h"
#include "tests/apps/cnn_gpu_support.h"
#include "tests/support/gpu.h"

namespace dunlin::cnn {
namespace {

[[maybe_unused]] const auto* const kFake = dunlin::testing::use_gpu_library();

void compare_with_torch(const std::vector<testing::Case>& cases) {
  const auto gpu = Device::open({.is_gpu = true, .number = 0}, 0).value();
  const auto cpu = Device::open({}, 0).value();
  for (const testing::Case& each : cases) {
    SCOPED_TRACE(each.name);
    auto network = make_gpu_network(each.architecture, gpu->driver(), 0);
    ASSERT_TRUE(network.is_ok()) << network.status().to_string();
    testing::Bound on_gpu(*gpu, std::move(network).value());
    testing::Bound on_cpu(*cpu, make_torch_network(each.architecture, 1).value());
    testing::compare(on_gpu, on_cpu, each.batch_size, each.tolerance);
  }
}

TEST(CnnGpuTorch, LayersAgree) {
  compare_with_torch(testing::layer_cases());
}

TEST(CnnGpuTorch, NetworksAgree) {
  compare_with_torch(testing::network_cases());
}

}  // namespace
}  // namespace dunlin::cnn
