// Shared by the tests of averages with neighbors on GPU memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/neighbor/neighbor_exchange.h"
#include "runtime/gpu/cuda_driver.h"
#include "tests/support/gpu.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {

using collective::NeighborCall;
using collective::NeighborExchange;
using collective::NeighborOptions;
using collective::NeighborRequest;
using transport::Fabric;

inline constexpr std::size_t kSlot = 4096;

// Memory of a GPU that no transport knows.
class Vector {
 public:
  explicit Vector(std::size_t size, int device = 0)
      : driver_(load_cuda_driver().value()),
        memory_(MemoryRegion::allocate_on_gpu(driver_, device, std::max<std::size_t>(size, 1))
                    .value()) {}
  std::byte* data() const { return memory_->data(); }
  void write(const std::vector<std::byte>& bytes) const {
    if (bytes.empty()) return;
    copy_and_await(*driver_, [&](GpuStream& stream) {
      return stream.copy_to_device(data(), bytes.data(), bytes.size());
    });
  }
  std::vector<std::byte> read(std::size_t size) const {
    std::vector<std::byte> bytes(size);
    if (size == 0) return bytes;
    copy_and_await(*driver_, [&](GpuStream& stream) {
      return stream.copy_to_host(bytes.data(), data(), size);
    });
    return bytes;
  }

 private:
  std::shared_ptr<GpuDriver> driver_;
  std::shared_ptr<MemoryRegion> memory_;
};

inline std::unique_ptr<NeighborExchange> make_exchange(Fabric& fabric, std::optional<int> gpu,
                                                       std::uint32_t depth = 2) {
  NeighborOptions options;
  options.name = gpu ? "gpu" : "host";
  options.slot_bytes = kSlot;
  options.depth = depth;
  options.gpu = gpu;
  auto exchange = NeighborExchange::create(fabric, options);
  EXPECT_TRUE(exchange.is_ok()) << exchange.status().to_string();
  return std::move(exchange).value();
}

}  // namespace dunlin::testing
