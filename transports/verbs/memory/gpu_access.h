// What transports/gpu_access.h promises, for RDMA devices. GpuMemory (gpu_memory.h) finds out the
// same later, for each region.
#pragma once

#include "runtime/config.h"
#include "runtime/gpu/driver.h"
#include "runtime/status.h"

namespace dunlin::transport::verbs {

// Of a device that supports dma-bufs if `dma_bufs` is ok, and otherwise says why not. Any thread.
Status check_gpu_access(const Status& dma_bufs, VerbsGpu wanted, const GpuDriver& driver);

}  // namespace dunlin::transport::verbs
