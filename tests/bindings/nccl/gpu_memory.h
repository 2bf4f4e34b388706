// Buffers of the host and of a GPU, for tests that play NCCL's part. Without a GPU, the driver is
// the stand-in for CUDA's (tests/fake_cuda).
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "runtime/gpu/cuda_interface.h"
#include "tests/bindings/nccl/ranks.h"

namespace dunlin::testing {

// The library of CUDA's driver, which the plugin then finds under its name.
inline void* load_cuda() {
  const char* const given = std::getenv("TEST_CUDA_DRIVER");
  void* const library = dlopen(given != nullptr ? given : DUNLIN_FAKE_CUDA, RTLD_NOW);
  require(library != nullptr, "no library of CUDA's driver", __LINE__);
  return library;
}

// The functions of CUDA's driver that a program uses which gives NCCL its buffers.
class Cuda {
 public:
  Cuda() {
    library_ = load_cuda();
    cuda::Context context{};
    REQUIRE(find<decltype(cuda::Functions::cuInit)>("cuInit")(0) == 0);
    REQUIRE(find<decltype(cuda::Functions::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(
                &context, 0) == 0);
    REQUIRE(find<decltype(cuda::Functions::cuCtxPushCurrent_v2)>("cuCtxPushCurrent_v2")(context) ==
            0);
  }
  void* allocate(std::size_t size) {
    cuda::Address address = 0;
    REQUIRE(find<decltype(cuda::Functions::cuMemAlloc_v2)>("cuMemAlloc_v2")(&address, size) == 0);
    return reinterpret_cast<void*>(address);
  }
  void free(void* data) {
    REQUIRE(find<decltype(cuda::Functions::cuMemFree_v2)>("cuMemFree_v2")(address_of(data)) == 0);
  }
  // Memory of cuMemCreate, as NCCL makes its buffers by default. The size is a multiple of kPiece.
  // NCCL does not let other processes open the memory of signals.
  void* map(std::size_t size, bool is_shareable) {
    cuda::Address address = 0;
    REQUIRE(find<decltype(cuda::Functions::cuMemAddressReserve)>("cuMemAddressReserve")(
                &address, size, 0, 0, 0) == 0);
    cuda::MemoryProperties properties;
    properties.type = cuda::kPinnedMemory;
    if (is_shareable) properties.handle_types = cuda::kHandleIsFd;
    properties.location = {cuda::kLocationIsDevice, 0};
    cuda::MemoryHandle handle = 0;
    REQUIRE(find<decltype(cuda::Functions::cuMemCreate)>("cuMemCreate")(&handle, size, &properties,
                                                                        0) == 0);
    REQUIRE(find<decltype(cuda::Functions::cuMemMap)>("cuMemMap")(address, size, 0, handle, 0) ==
            0);
    REQUIRE(find<decltype(cuda::Functions::cuMemRelease)>("cuMemRelease")(handle) == 0);
    cuda::MemoryAccess access;
    access.location = properties.location;
    access.flags = cuda::kReadAndWrite;
    REQUIRE(find<decltype(cuda::Functions::cuMemSetAccess)>("cuMemSetAccess")(address, size,
                                                                              &access, 1) == 0);
    return reinterpret_cast<void*>(address);
  }
  void unmap(void* data, std::size_t size) {
    REQUIRE(find<decltype(cuda::Functions::cuMemUnmap)>("cuMemUnmap")(address_of(data), size) == 0);
    REQUIRE(find<decltype(cuda::Functions::cuMemAddressFree)>("cuMemAddressFree")(address_of(data),
                                                                                  size) == 0);
  }
  void write(void* to, const Block& from) {
    const auto copy = find<decltype(cuda::Functions::cuMemcpyHtoDAsync_v2)>("cuMemcpyHtoDAsync_v2");
    in_stream([&](cuda::Stream stream) {
      return copy(address_of(to), from.data(), from.size(), stream);
    });
  }
  Block read(const void* from, std::size_t size) {
    Block block(size);
    const auto copy = find<decltype(cuda::Functions::cuMemcpyDtoHAsync_v2)>("cuMemcpyDtoHAsync_v2");
    in_stream(
        [&](cuda::Stream stream) { return copy(block.data(), address_of(from), size, stream); });
    return block;
  }

 private:
  static cuda::Address address_of(const void* data) {
    return reinterpret_cast<cuda::Address>(data);
  }
  template <typename Function>
  Function find(const char* name) {
    void* const found = dlsym(library_, name);
    require(found != nullptr, name, __LINE__);
    return reinterpret_cast<Function>(found);
  }
  template <typename Start>
  void in_stream(Start&& start) {
    cuda::Stream stream{};
    REQUIRE(find<decltype(cuda::Functions::cuStreamCreate)>("cuStreamCreate")(&stream, 1) == 0);
    REQUIRE(start(stream) == 0);
    const auto query = find<decltype(cuda::Functions::cuStreamQuery)>("cuStreamQuery");
    until([&] { return query(stream) == 0; }, "a copy of the test");
    REQUIRE(find<decltype(cuda::Functions::cuStreamDestroy_v2)>("cuStreamDestroy_v2")(stream) == 0);
  }
  void* library_ = nullptr;
};

enum class Kind { kHost, kAllocated, kMapped, kUnshareable };

// `size`: a multiple of 2 MiB if the memory is mapped.
struct Buffer {
  Buffer(Cuda& driver, Kind of_kind, std::size_t bytes)
      : cuda(driver), kind(of_kind), size(bytes), host(kind == Kind::kHost ? size : 0) {
    data = kind == Kind::kHost        ? host.data()
           : kind == Kind::kAllocated ? cuda.allocate(size)
                                      : cuda.map(size, kind == Kind::kMapped);
  }
  ~Buffer() {
    if (kind == Kind::kAllocated) cuda.free(data);
    if (kind == Kind::kMapped || kind == Kind::kUnshareable) cuda.unmap(data, size);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  bool is_on_gpu() const { return kind != Kind::kHost; }
  int type() const { return is_on_gpu() ? abi::kPointerCuda : abi::kPointerHost; }
  void write(const Block& from) {
    if (is_on_gpu()) {
      cuda.write(data, from);
    } else {
      std::copy(from.begin(), from.end(), host.begin());
    }
  }
  Block read(std::size_t bytes) {
    return is_on_gpu() ? cuda.read(data, bytes)
                       : Block(host.begin(), host.begin() + static_cast<std::ptrdiff_t>(bytes));
  }
  Cuda& cuda;
  Kind kind;
  std::size_t size;
  Block host;
  void* data = nullptr;
};

}  // namespace dunlin::testing
