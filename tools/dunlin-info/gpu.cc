#include <fmt/format.h>

#include "runtime/gpu/cuda_driver.h"
#include "runtime/pci.h"
#include "tools/dunlin-info/report.h"

namespace dunlin::tools {
namespace {

Json works(const Status& status, const char* use) {
  Json json;
  json["works"] = status.is_ok();
  if (!status.is_ok()) json["reason"] = std::string(status.message());
  json["used_for"] = use;
  return json;
}

const char* in_words(GpuWrites writes) {
  switch (writes) {
    case GpuWrites::kOrdered:
      return "kernels see them at once";
    case GpuWrites::kNeedFlush:
      return "flushed before they are announced";
    case GpuWrites::kUnordered:
      return "not reliably visible, so only staging is used";
  }
  return "?";
}

Json describe(const GpuDevice& device) {
  Json json;
  json["name"] = device.name;
  json["memory_bytes"] = device.memory_bytes;
  json["compute_capability"] = fmt::format("{}.{}", device.compute_major, device.compute_minor);
  if (!device.pci_bus_id.empty()) {
    json["pci_bus_id"] = device.pci_bus_id;
    if (const auto node = numa_node_of("/sys/bus/pci/devices/" + device.pci_bus_id))
      json["numa_node"] = *node;
  }
  json["dma_buf"] =
      works(device.dma_buf, "registering its memory with RDMA devices that accept DMA-BUF");
  json["nvidia_peermem"] =
      works(device.peer_mapping, "registering its memory with other RDMA devices");
  json["staging"] =
      works(Status::ok(), "copying through host memory when registration is impossible");
  json["writes_of_rdma_devices"] = in_words(device.writes);
  return json;
}

}  // namespace

Json gpu_report(const Config& config) {
  Json json;
  Json devices = Json::object();
  if (const auto driver = load_cuda_driver()) {
    for (const GpuDevice& device : (*driver)->devices())
      devices[std::to_string(device.number)] = describe(device);
  } else {
    json["reason"] = std::string(driver.status().message());
    json["remedy"] =
        "with an NVIDIA GPU: install its driver (Debian: nvidia-driver, libcuda1), or start the "
        "container with it (--gpus all)";
  }
  if (config.verbs_gpu != VerbsGpu::kAuto) json["verbs"] = "DUNLIN_VERBS_GPU forces one way";
  json["devices"] = std::move(devices);
  return json;
}

}  // namespace dunlin::tools
