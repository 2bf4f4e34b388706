// Streams, events and modules of CUDA. Internal to this folder. The contracts are those of
// runtime/gpu/driver.h.
#pragma once

#include <memory>

#include "runtime/gpu/cuda_library.h"
#include "runtime/gpu/driver.h"

namespace dunlin {

// `library` outlives what these make. `device` is for messages.
Result<std::unique_ptr<GpuStream>> create_cuda_stream(const CudaLibrary& library,
                                                      cuda::Context context, int device);
Result<std::unique_ptr<GpuEvent>> create_cuda_event(const CudaLibrary& library,
                                                    cuda::Context context, int device);
Result<std::unique_ptr<GpuModule>> load_cuda_module(const CudaLibrary& library,
                                                    cuda::Context context, int device,
                                                    const void* image);

}  // namespace dunlin
