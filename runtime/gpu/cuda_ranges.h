// GpuRanges over CUDA's virtual memory management. Internal to this folder. Calls are made with the
// context of the device current.
#pragma once

#include "runtime/gpu/cuda_library.h"
#include "runtime/gpu/ranges.h"

namespace dunlin {

Result<ExportedGpuRange> export_cuda_range(const CudaLibrary& library, cuda::Context context,
                                           std::byte* data, std::size_t size);
// `library` outlives the result.
Result<std::unique_ptr<MappedGpuRange>> map_cuda_range(const CudaLibrary& library,
                                                       cuda::Context context, int device,
                                                       std::span<const Fd> descriptors,
                                                       std::span<const std::uint64_t> sizes);

}  // namespace dunlin
