// What transports/gpu_access.h promises, for RDMA devices.
#pragma once

#include "runtime/config.h"
#include "runtime/gpu/driver.h"
#include "runtime/status.h"

namespace dunlin::transport::verbs {

// The way in which a device reaches all GPUs: `wanted`, or the first direct one if that is kAuto.
// `dma_bufs`: whether the device supports dma-bufs, or why not. Any thread.
Result<VerbsGpu> find_gpu_access(const Status& dma_bufs, VerbsGpu wanted, const GpuDriver& driver);

}  // namespace dunlin::transport::verbs
