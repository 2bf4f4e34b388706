// find_gpu_access(): whether a plugin should offer GPU memory over a transport: it is reached
// directly, or the settings ask for copies. The answer is needed before any memory is registered. A
// program such as NCCL copies through host memory faster than Dunlin does.
#pragma once

#include <string>

#include "runtime/config.h"
#include "runtime/gpu/driver.h"
#include "runtime/status.h"

namespace dunlin::transport {

// Ok if the transport, which `name` gives as in DUNLIN_TRANSPORTS, reaches memory of all of the
// driver's GPUs. kUnavailable says what is missing, and of which GPU. Registering a region can
// still fail. Over verbs, `device` ("mlx5_0") has to access the memory directly in one way that
// config.verbs_gpu allows, which becomes that way: what cannot be registered so later is an error,
// and is not copied. `staging` asks for copies, and `peermem` is tried without a look for the
// kernel module, which has had several names. Other transports ignore `device`. Any thread.
Status find_gpu_access(const std::string& name, const std::string& device, Config& config,
                       const GpuDriver& driver);

}  // namespace dunlin::transport
