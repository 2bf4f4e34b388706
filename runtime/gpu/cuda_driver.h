// The GpuDriver over CUDA's driver API. The library is loaded at run time, so that the same program
// runs on hosts without it.
#pragma once

#include <memory>
#include <string>

#include "runtime/gpu/driver.h"

namespace dunlin {

inline constexpr const char* kCudaLibrary = "libcuda.so.1";

// Returns the driver that this process has already loaded if anything still holds it, and otherwise
// loads it. kUnavailable names what is missing: the library, one of its functions or a device. The
// library stays loaded. Tests pass another `library`.
Result<std::shared_ptr<GpuDriver>> load_cuda_driver(const std::string& library = kCudaLibrary);

// The PCI bus id, as in GpuDevice, of the calling thread's current GPU. Empty when it has none, or
// when this process has not loaded the driver; this function does not load it.
std::string current_gpu(const std::string& library = kCudaLibrary);

// The newest version of CUDA that the driver supports: 13000 for 13.0; 0: not known.
int cuda_version(const std::string& library = kCudaLibrary);

// Ok if work of the GPU `device` can access the memory of the GPU `peer` directly; kUnavailable if
// not. Their numbers are those of GpuDriver::devices(), whose driver the caller has loaded.
Status cuda_peer_access(int device, int peer, const std::string& library = kCudaLibrary);

}  // namespace dunlin
