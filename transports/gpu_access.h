// check_gpu_access(): whether a transport reaches GPU memory without copies through host memory.
// Plugins have to say so before any memory is registered, because their hosts copy better where a
// transport does not.
#pragma once

#include <string>

#include "runtime/config.h"
#include "runtime/gpu/driver.h"
#include "runtime/status.h"

namespace dunlin::transport {

// Ok if memory of all of the driver's GPUs can be registered with the transport, which `name` gives
// as in DUNLIN_TRANSPORTS. kUnavailable says what is missing, and of which GPU. Over verbs,
// `device` ("mlx5_0") has to access it directly in a way that `config` allows (DUNLIN_VERBS_GPU):
// `staging` is a wish for copies, and `peermem` is taken at its word, because the kernel module has
// had several names. Other transports ignore `device`. Any thread.
Status check_gpu_access(const std::string& name, const std::string& device, const Config& config,
                        const GpuDriver& driver);

}  // namespace dunlin::transport
