// The driver that the tests of GPUs load: the stand-in, or the library that TEST_CUDA_DRIVER names
// (libcuda.so.1 on a host with a GPU).
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>

#include "runtime/gpu/driver.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tests/support/paths.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {

inline std::string gpu_library() {
  const char* const given = std::getenv("TEST_CUDA_DRIVER");
  return given != nullptr ? given : built("tests/fake_cuda/libcuda.so.1");
}

// Makes the code under test load this driver as CUDA's. Returns the stand-in; null if the tests run
// on a GPU.
inline FakeCuda* use_gpu_library() {
  void* const library = dlopen(gpu_library().c_str(), RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(dlerror());
  void* const found = dlsym(library, "fake_cuda");
  return found == nullptr ? nullptr : &reinterpret_cast<FakeCudaState*>(found)();
}

// Starts a copy and waits for its end.
inline void copy_and_await(GpuDriver& driver, const std::function<Status(GpuStream&)>& copy) {
  const auto stream = driver.create_stream(0).value();
  const SteadyClock clock;
  EXPECT_TRUE(copy(*stream).is_ok());
  const Status status =
      await(*stream, clock, clock.now() + std::chrono::seconds(60) * timeout_factor(), "a test");
  EXPECT_TRUE(status.is_ok()) << status.to_string();
}

// Expects that nothing of a GPU is left when all ranks have ended.
inline void expect_nothing_left(FakeCuda& fake) {
  EXPECT_EQ(fake.allocations(), 0) << "after a failed " << fake.failed_call;
  EXPECT_EQ(fake.opened(), 0) << "after a failed " << fake.failed_call;
  EXPECT_EQ(fake.streams, 0) << "after a failed " << fake.failed_call;
  EXPECT_EQ(fake.events, 0) << "after a failed " << fake.failed_call;
  EXPECT_EQ(fake.modules, 0) << "after a failed " << fake.failed_call;
  EXPECT_EQ(fake.freed_while_open, 0) << "after a failed " << fake.failed_call;
}

// Runs the ranks over shm. `fake`: the stand-in, which is reset before; null on a GPU. `killed`: as
// in RunOptions.
inline void run_gpu_ranks(FakeCuda* fake, PeerKind kind, int size, const RankBody& body,
                          std::set<int> killed = {}) {
  if (fake != nullptr) fake->reset();
  run_ranks({.kind = kind,
             .size = size,
             .killed = std::move(killed),
             .configure = [](Config& config) { config.transports = {"shm"}; },
             .at_end =
                 [fake] {
                   if (fake != nullptr) expect_nothing_left(*fake);
                 }},
            body);
  if (fake != nullptr) expect_nothing_left(*fake);
}

}  // namespace dunlin::testing
