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

// The PCI bus id, as in GpuDevice, of the GPU that the calling thread has made current. Empty: it
// has none, or this process has not loaded the driver, which isn't done for this question.
std::string current_gpu(const std::string& library = kCudaLibrary);

}  // namespace dunlin
