// Checks of memory that callers pass for work on a GPU.
#pragma once

#include <cstddef>
#include <string_view>

#include "collectives/kernels/data_type.h"
#include "runtime/gpu/driver.h"

namespace dunlin::collective {

// Returns kInvalidArgument unless [data, data + size) lies within one allocation of this device and
// is aligned to the type. Returns what GpuDriver::find() does for memory that cannot be used.
// `what` names the memory in the error, and `user` what works on it.
Status check_gpu_memory(GpuDriver& driver, int device, std::string_view what, const void* data,
                        std::size_t size, DataType type, std::string_view user);

}  // namespace dunlin::collective
