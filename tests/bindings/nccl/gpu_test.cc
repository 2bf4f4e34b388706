// Buffers in GPU memory, called as NCCL calls the plugin. Without a GPU, on the stand-in for CUDA's
// driver, which carries copies out late.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/bindings/nccl/gpu_memory.h"
#include "tests/bindings/nccl/ranks.h"

namespace dunlin::testing {
namespace {

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
