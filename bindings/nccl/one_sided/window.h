// Window: memory that each rank of a group has registered under one number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/gpu/driver.h"
#include "transports/endpoint/connection.h"

namespace dunlin::nccl {

struct Window {
  std::uint64_t number = 0;  // from 1, the same on all ranks
  std::byte* data = nullptr;
  std::size_t size = 0;
  transport::MemoryId id{};
  std::shared_ptr<GpuDriver> gpu;  // null: the memory is the host's
  int gpu_device = 0;
};

// Whether `bytes` bytes at `offset` lie within `size` bytes.
inline bool fits(std::uint64_t offset, std::uint64_t bytes, std::uint64_t size) {
  return offset <= size && bytes <= size - offset;
}

}  // namespace dunlin::nccl
