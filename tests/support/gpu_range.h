// GpuRangeMemory: memory of a GPU that is put together from pieces (CUDA's virtual memory
// management), as PyTorch's expandable segments are.
#pragma once

#include <stdexcept>
#include <vector>

#include "runtime/gpu/cuda_library.h"
#include "tests/support/gpu.h"

namespace dunlin::testing {

class GpuRangeMemory {
 public:
  static constexpr std::size_t kPiece = std::size_t{2} << 20;

  // `size` bytes that begin `before` bytes in front of the second piece. With `is_shared` false,
  // the pieces are made without a handle for other processes.
  GpuRangeMemory(std::size_t size, std::size_t before, bool is_shared = true)
      : library_(CudaLibrary::load(gpu_library()).value()) {
    const std::size_t first = kPiece - before;
    const std::size_t pieces = (first + size + kPiece - 1) / kPiece;
    size_ = pieces * kPiece;
    check(library_->cuMemAddressReserve(&address_, size_, 0, 0, 0));
    cuda::MemoryProperties properties;
    properties.type = cuda::kPinnedMemory;
    properties.handle_types = is_shared ? cuda::kHandleIsFd : 0;
    properties.location = {cuda::kLocationIsDevice, 0};
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      cuda::MemoryHandle handle = 0;
      check(library_->cuMemCreate(&handle, kPiece, &properties, 0));
      check(library_->cuMemMap(address_ + piece * kPiece, kPiece, 0, handle, 0));
      check(library_->cuMemRelease(handle));
    }
    cuda::MemoryAccess access;
    access.location = properties.location;
    access.flags = cuda::kReadAndWrite;
    check(library_->cuMemSetAccess(address_, size_, &access, 1));
    data_ = reinterpret_cast<std::byte*>(address_ + first);
  }
  ~GpuRangeMemory() {
    for (std::size_t at = 0; at < size_; at += kPiece)
      EXPECT_EQ(library_->cuMemUnmap(address_ + at, kPiece), cuda::kSuccess);
    EXPECT_EQ(library_->cuMemAddressFree(address_, size_), cuda::kSuccess);
  }
  GpuRangeMemory(const GpuRangeMemory&) = delete;
  GpuRangeMemory& operator=(const GpuRangeMemory&) = delete;

  std::byte* data() const { return data_; }

 private:
  static void check(cuda::Code code) {
    if (code != cuda::kSuccess) throw std::runtime_error("CUDA error " + std::to_string(code));
  }

  CudaLibrary library_;
  cuda::Address address_ = 0;
  std::size_t size_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace dunlin::testing
