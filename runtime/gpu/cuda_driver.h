// The GpuDriver over CUDA's driver API, which is looked for at run time: the same program runs on
// machines without it.
#pragma once

#include <memory>
#include <string>

#include "runtime/gpu/driver.h"

namespace dunlin {

inline constexpr const char* kCudaLibrary = "libcuda.so.1";

// kUnavailable says what is missing: the library, a function of it, a device. Never unloaded.
// `library`: tests name another.
Result<std::shared_ptr<GpuDriver>> load_cuda_driver(const std::string& library = kCudaLibrary);

}  // namespace dunlin
