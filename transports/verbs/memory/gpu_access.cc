#include "transports/verbs/memory/gpu_access.h"

#include <fmt/format.h>

#include <string>

#include "transports/verbs/device/handle.h"
#include "transports/verbs/factory.h"

namespace dunlin::transport::verbs {
namespace {

Status dma_bufs_of(const std::string& name) {
  DUNLIN_ASSIGN(const auto device, Device::open(name));
  DUNLIN_ASSIGN(const auto domain, ProtectionDomain::create(device->handle(), false, false));
  return check_dma_buf(*domain);
}

Status check_gpu(const GpuDevice& gpu, const Status& dma_bufs, VerbsGpu wanted) {
  if (gpu.writes == GpuWrites::kUnordered)
    return {Code::kUnavailable, "its driver cannot flush what other devices write"};
  const Status& dma_buf = gpu.dma_buf.is_ok() ? dma_bufs : gpu.dma_buf;
  if (dma_buf.is_ok()) return Status::ok();
  if (wanted == VerbsGpu::kDmaBuf) return {Code::kUnavailable, std::string(dma_buf.message())};
  if (gpu.peer_mapping.is_ok()) return Status::ok();
  return {Code::kUnavailable, fmt::format("dma-buf: {}; nvidia-peermem: {}", dma_buf.message(),
                                          gpu.peer_mapping.message())};
}

}  // namespace

Status check_gpu_access(const std::string& device, const Config& config, const GpuDriver& driver) {
  return check_gpu_access(dma_bufs_of(device), config.verbs_gpu, driver);
}

Status check_gpu_access(const Status& dma_bufs, VerbsGpu wanted, const GpuDriver& driver) {
  if (wanted == VerbsGpu::kStaging || wanted == VerbsGpu::kPeerMemory) return Status::ok();
  for (const GpuDevice& gpu : driver.devices()) {
    if (Status status = check_gpu(gpu, dma_bufs, wanted); !status.is_ok())
      return std::move(status).with_context(fmt::format("GPU {}", gpu.number));
  }
  return Status::ok();
}

}  // namespace dunlin::transport::verbs
