// Which driver the tests of GPUs load: the stand-in, or the library that DUNLIN_TEST_CUDA names, as
// tools/gpu-check does on a host with a GPU.
#pragma once

#include <cstdlib>
#include <string>

#include "tests/support/paths.h"

namespace dunlin::testing {

inline std::string gpu_library() {
  const char* const given = std::getenv("DUNLIN_TEST_CUDA");
  return given != nullptr ? given : built("tests/fake_cuda/libfake_cuda.so");
}
inline bool has_real_gpu() {
  return std::getenv("DUNLIN_TEST_CUDA") != nullptr;
}

}  // namespace dunlin::testing
