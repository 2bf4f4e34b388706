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

// Ok if `check` is ok for all GPUs.
template <typename Check>
Status of_all(const GpuDriver& driver, const Check& check) {
  for (const GpuDevice& gpu : driver.devices()) {
    if (Status status = check(gpu); !status.is_ok())
      return std::move(status).with_context(fmt::format("GPU {}", gpu.number));
  }
  return Status::ok();
}

Status check_writes(const GpuDevice& gpu) {
  if (gpu.writes != GpuWrites::kUnordered) return Status::ok();
  return {Code::kUnavailable, "its driver cannot flush what other devices write"};
}

}  // namespace

Status find_gpu_access(const std::string& device, Config& config, const GpuDriver& driver) {
  const bool asks = config.verbs_gpu == VerbsGpu::kAuto || config.verbs_gpu == VerbsGpu::kDmaBuf;
  const Status dma_bufs = asks ? dma_bufs_of(device) : Status::ok();
  DUNLIN_ASSIGN(config.verbs_gpu, find_gpu_access(dma_bufs, config.verbs_gpu, driver));
  return Status::ok();
}

Result<VerbsGpu> find_gpu_access(const Status& dma_bufs, VerbsGpu wanted, const GpuDriver& driver) {
  if (wanted == VerbsGpu::kStaging) return wanted;
  DUNLIN_TRY(of_all(driver, check_writes));
  if (wanted == VerbsGpu::kPeerMemory) return wanted;
  Status dma_buf = of_all(driver, [&](const GpuDevice& gpu) {
    return Status(gpu.dma_buf.is_ok() ? dma_bufs : gpu.dma_buf);
  });
  if (dma_buf.is_ok()) return VerbsGpu::kDmaBuf;
  if (wanted == VerbsGpu::kDmaBuf) return dma_buf;
  const Status mapping =
      of_all(driver, [](const GpuDevice& gpu) { return Status(gpu.peer_mapping); });
  if (mapping.is_ok()) return VerbsGpu::kPeerMemory;
  return Status(Code::kUnavailable, fmt::format("dma-buf: {}; nvidia-peermem: {}",
                                                dma_buf.message(), mapping.message()));
}

}  // namespace dunlin::transport::verbs
