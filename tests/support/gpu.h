// Which driver the tests of GPUs load: the stand-in, or the library that DUNLIN_TEST_CUDA names, as
// tools/gpu-check does on a host with a GPU.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/support/paths.h"

namespace dunlin::testing {

inline std::string gpu_library() {
  const char* const given = std::getenv("DUNLIN_TEST_CUDA");
  return given != nullptr ? given : built("tests/fake_cuda/libcuda.so.1");
}

// Makes what the library under test loads as CUDA's driver the one of the tests. Returns the
// stand-in; null if the tests run on a GPU.
inline FakeCuda* use_gpu_library() {
  void* const library = dlopen(gpu_library().c_str(), RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(dlerror());
  void* const found = dlsym(library, "fake_cuda");
  return found == nullptr ? nullptr : &reinterpret_cast<FakeCudaState*>(found)();
}

}  // namespace dunlin::testing
