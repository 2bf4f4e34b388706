// Buffers in GPU memory, called as NCCL calls the plugin. Without a GPU, on the stand-in for CUDA's
// driver, which carries copies out late.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/gpu/cuda_interface.h"
#include "tests/bindings/nccl/ranks.h"

namespace dunlin::testing {
namespace {

using cuda::Functions;

void* load_cuda() {
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
    REQUIRE(find<decltype(Functions::cuInit)>("cuInit")(0) == 0);
    REQUIRE(find<decltype(Functions::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(
                &context, 0) == 0);
    REQUIRE(find<decltype(Functions::cuCtxPushCurrent_v2)>("cuCtxPushCurrent_v2")(context) == 0);
  }
  void* allocate(std::size_t size) {
    cuda::Address address = 0;
    REQUIRE(find<decltype(Functions::cuMemAlloc_v2)>("cuMemAlloc_v2")(&address, size) == 0);
    return reinterpret_cast<void*>(address);
  }
  void free(void* data) {
    REQUIRE(find<decltype(Functions::cuMemFree_v2)>("cuMemFree_v2")(address_of(data)) == 0);
  }
  // Memory of cuMemCreate, as NCCL makes its buffers by default. The size is a multiple of kPiece.
  void* map(std::size_t size) {
    cuda::Address address = 0;
    REQUIRE(find<decltype(Functions::cuMemAddressReserve)>("cuMemAddressReserve")(&address, size, 0,
                                                                                  0, 0) == 0);
    cuda::MemoryProperties properties;
    properties.type = cuda::kPinnedMemory;
    properties.handle_types = cuda::kHandleIsFd;
    properties.location = {cuda::kLocationIsDevice, 0};
    cuda::MemoryHandle handle = 0;
    REQUIRE(find<decltype(Functions::cuMemCreate)>("cuMemCreate")(&handle, size, &properties, 0) ==
            0);
    REQUIRE(find<decltype(Functions::cuMemMap)>("cuMemMap")(address, size, 0, handle, 0) == 0);
    REQUIRE(find<decltype(Functions::cuMemRelease)>("cuMemRelease")(handle) == 0);
    cuda::MemoryAccess access;
    access.location = properties.location;
    access.flags = cuda::kReadAndWrite;
    REQUIRE(find<decltype(Functions::cuMemSetAccess)>("cuMemSetAccess")(address, size, &access,
                                                                        1) == 0);
    return reinterpret_cast<void*>(address);
  }
  void unmap(void* data, std::size_t size) {
    REQUIRE(find<decltype(Functions::cuMemUnmap)>("cuMemUnmap")(address_of(data), size) == 0);
    REQUIRE(find<decltype(Functions::cuMemAddressFree)>("cuMemAddressFree")(address_of(data),
                                                                            size) == 0);
  }
  void write(void* to, const Block& from) {
    const auto copy = find<decltype(Functions::cuMemcpyHtoDAsync_v2)>("cuMemcpyHtoDAsync_v2");
    in_stream([&](cuda::Stream stream) {
      return copy(address_of(to), from.data(), from.size(), stream);
    });
  }
  Block read(const void* from, std::size_t size) {
    Block block(size);
    const auto copy = find<decltype(Functions::cuMemcpyDtoHAsync_v2)>("cuMemcpyDtoHAsync_v2");
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
    REQUIRE(find<decltype(Functions::cuStreamCreate)>("cuStreamCreate")(&stream, 1) == 0);
    REQUIRE(start(stream) == 0);
    const auto query = find<decltype(Functions::cuStreamQuery)>("cuStreamQuery");
    until([&] { return query(stream) == 0; }, "a copy of the test");
    REQUIRE(find<decltype(Functions::cuStreamDestroy_v2)>("cuStreamDestroy_v2")(stream) == 0);
  }
  void* library_ = nullptr;
};

enum class Kind { kHost, kAllocated, kMapped };

// `size`: a multiple of 2 MiB if the memory is mapped.
struct Buffer {
  Buffer(Cuda& driver, Kind of_kind, std::size_t bytes)
      : cuda(driver), kind(of_kind), size(bytes), host(kind == Kind::kHost ? size : 0) {
    data = kind == Kind::kHost        ? host.data()
           : kind == Kind::kAllocated ? cuda.allocate(size)
                                      : cuda.map(size);
  }
  ~Buffer() {
    if (kind == Kind::kAllocated) cuda.free(data);
    if (kind == Kind::kMapped) cuda.unmap(data, size);
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

std::string transport() {
  const char* const name = std::getenv("NCCL_TEST_TRANSPORT");
  return name == nullptr ? "shm" : name;
}

class NcclGpu : public ::testing::TestWithParam<int> {
 protected:
  NcclGpu() { setenv("FAKE_CUDA_DELAY_US", "300", 0); }
  ~NcclGpu() override { dlclose(library_); }
  std::string run_here(const std::function<void(Rank&, Cuda&)>& body,
                       const std::vector<int>& killed = {}) {
    return run(
        2, GetParam(), transport(),
        [&](Rank& rank) {
          Cuda cuda;
          body(rank, cuda);
        },
        killed);
  }

 private:
  void* const library_ = load_cuda();  // so that the plugin finds it under its name
};

TEST_P(NcclGpu, TransfersFromAndToGpuMemory) {
  // The kinds of memory of the sender and of the receiver.
  for (const auto& [from, to] : {std::pair(Kind::kAllocated, Kind::kAllocated),
                                 {Kind::kHost, Kind::kAllocated},
                                 {Kind::kAllocated, Kind::kHost},
                                 {Kind::kMapped, Kind::kMapped}}) {
    EXPECT_EQ(
        "", run_here([from, to](Rank& rank, Cuda& cuda) {
          Pair pair(rank);
          const std::vector<std::size_t> sizes = {8, 0, 1, 4095, 1'000'003, std::size_t{4} << 20};
          {
            Buffer buffer(cuda, pair.is_receiver() ? to : from, sizes.back());
            void* memory = rank.add(pair.comm, buffer.data, sizes.back(), buffer.type());
            for (const std::size_t size : sizes) {
              const Block expected = pattern(size, size % 256);
              if (pair.is_receiver()) {
                REQUIRE(rank.wait(rank.receive(pair.comm, buffer.data, sizes.back(), 7, memory)) ==
                        static_cast<int>(size));
                // What NCCL asks for before its kernels read.
                int bytes = static_cast<int>(size);
                void* flush = &bytes;
                REQUIRE(rank.plugin.common().flush(pair.comm, 1, &buffer.data, &bytes, &memory,
                                                   &flush) == abi::kSuccess);
                REQUIRE(flush == nullptr);
                REQUIRE(buffer.read(size) == expected);
              } else {
                buffer.write(expected);
                REQUIRE(rank.wait(rank.send(pair.comm, buffer.data, size, 7, memory)) ==
                        static_cast<int>(size));
              }
            }
            rank.sync();
            REQUIRE(rank.plugin.common().deregister(pair.comm, memory) == abi::kSuccess);
          }
          pair.close();
          REQUIRE(warnings() == 0);
        }))
        << "kind " << static_cast<int>(from) << " to " << static_cast<int>(to);
  }
}

TEST_P(NcclGpu, ADeathEndsWhatIsInFlight) {
  EXPECT_EQ("", run_here(
                    [](Rank& rank, Cuda& cuda) {
                      Pair pair(rank);
                      constexpr std::size_t kSize = std::size_t{1} << 20;
                      Buffer buffer(cuda, Kind::kAllocated, kSize);
                      void* const memory = rank.add(pair.comm, buffer.data, kSize, buffer.type());
                      void* request = nullptr;
                      if (pair.is_receiver())
                        request = rank.receive(pair.comm, buffer.data, kSize, 0, memory);
                      rank.sync();
                      if (!pair.is_receiver()) raise(SIGKILL);
                      REQUIRE(rank.wait_for_error(request) == abi::kRemoteError);
                      pair.close();
                    },
                    {1}));
}

TEST_P(NcclGpu, MemoryOfTheWrongKindIsRefused) {
  EXPECT_EQ("", run_here([](Rank& rank, Cuda& cuda) {
              Pair pair(rank);
              const auto& calls = rank.plugin.common();
              Buffer on_gpu(cuda, Kind::kAllocated, 4096), on_host(cuda, Kind::kHost, 4096);
              const auto refuses = [&](void* data, std::size_t size, int type) {
                void* memory = &memory;
                return calls.register_memory(pair.comm, data, size, type, &memory) !=
                           abi::kSuccess &&
                       memory == nullptr;
              };
              REQUIRE(refuses(on_host.data, 4096, abi::kPointerCuda));
              REQUIRE(refuses(on_gpu.data, 1 << 30, abi::kPointerCuda));  // beyond the allocation
              REQUIRE(refuses(on_gpu.data, 4096, 3));
              rank.sync();
              pair.close();
            }));
}

TEST_P(NcclGpu, DevicesSayWhichMemoryTheyReach) {
  if (std::getenv("TEST_CUDA_DRIVER") != nullptr) GTEST_SKIP() << "a GPU cannot be taken away";
  for (const bool has_gpu : {true, false}) {
    setenv("FAKE_CUDA_DEVICES", has_gpu ? "1" : "0", 1);
    EXPECT_EQ("", run(1, GetParam(), "tcp,shm", [has_gpu](Rank& rank) {
                REQUIRE(rank.plugin.pointer_support(0) == abi::kPointerHost);
                REQUIRE(rank.plugin.pointer_support(1) ==
                        (has_gpu ? abi::kPointerHost | abi::kPointerCuda : abi::kPointerHost));
              }));
  }
  unsetenv("FAKE_CUDA_DEVICES");
}

INSTANTIATE_TEST_SUITE_P(, NcclGpu, ::testing::Values(8, 9, 10, 11),
                         [](const auto& each) { return "v" + std::to_string(each.param); });

}  // namespace
}  // namespace dunlin::testing
