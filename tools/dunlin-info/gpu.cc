#include <fmt/format.h>

#include "collectives/kernels/gpu/gpu_kernels.h"
#include "runtime/gpu/cuda_driver.h"
#include "runtime/pci.h"
#include "tools/dunlin-info/report.h"
#include "tools/dunlin-info/sysfs.h"

namespace dunlin::tools {
namespace {

// What is allocated to see whether it can be shared.
constexpr std::size_t kTried = 64 << 10;

constexpr const char* kDmaBufRemedy =
    "install NVIDIA's open kernel modules (Debian: nvidia-open-kernel-dkms), CUDA 11.7 or newer "
    "and Linux 5.12 or newer";
constexpr const char* kPeerMemoryRemedy =
    "use a data center or workstation GPU, and load the module of its driver: modprobe "
    "nvidia-peermem";
constexpr const char* kStagedRemedy =
    "none is needed: RDMA devices reach the memory by copies through the host (staging)";

Json works(const Status& status, const char* use, const char* remedy) {
  Json json;
  json["works"] = status.is_ok();
  if (!status.is_ok()) {
    json["reason"] = std::string(status.message());
    json["remedy"] = remedy;
  }
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

// Whether RDMA devices access the memory without a copy through the host, and if not, why.
Json gpudirect_rdma(const GpuDevice& device) {
  Json json;
  const bool is_visible = device.writes != GpuWrites::kUnordered;
  json["works"] = is_visible && (device.dma_buf.is_ok() || device.peer_mapping.is_ok());
  if (!is_visible) {
    json["reason"] = "kernels may not see what RDMA devices have written, and no flush makes them";
    json["remedy"] = kStagedRemedy;
  } else if (device.dma_buf.is_ok()) {
    json["way"] = "dma-buf, with RDMA devices that accept it";
  } else if (device.peer_mapping.is_ok()) {
    json["way"] = "nvidia-peermem";
  } else {
    json["reason"] = fmt::format("{}; {}", device.dma_buf.message(), device.peer_mapping.message());
    json["remedy"] = fmt::format("{}; or {}", kDmaBufRemedy, kPeerMemoryRemedy);
  }
  return json;
}

// Tries it, which takes a context on the GPU.
Status try_sharing(GpuDriver& driver, int device) {
  DUNLIN_ASSIGN(std::byte* const memory, driver.allocate(device, kTried));
  Status status = driver.share(device, memory).status();
  driver.free(device, memory);
  return status;
}

Json describe(const std::shared_ptr<GpuDriver>& driver, const GpuDevice& device) {
  Json json;
  json["name"] = device.name;
  json["memory_bytes"] = device.memory_bytes;
  json["compute_capability"] = fmt::format("{}.{}", device.compute_major, device.compute_minor);
  if (!device.pci_bus_id.empty()) {
    json["pci_bus_id"] = device.pci_bus_id;
    if (const auto node = numa_node_of("/sys/bus/pci/devices/" + device.pci_bus_id))
      json["numa_node"] = *node;
  }
  json["cuda_ipc"] = works(try_sharing(*driver, device.number),
                           "sharing its memory with other processes of this host",
                           "see in nvidia-smi whether another process has the GPU to itself; in a "
                           "container, share the host's IPC namespace (--ipc=host)");
  json["kernels"] = works(collective::GpuKernels::load(driver, device.number).status(),
                          "reductions of collectives on its memory",
                          collective::has_gpu_kernels()
                              ? "use a GPU of compute capability 8.0 or newer, and a driver as "
                                "new as the nvcc of the build"
                              : "see kernels_of_this_build");
  json["gpudirect_rdma"] = gpudirect_rdma(device);
  json["dma_buf"] =
      works(device.dma_buf, "registering its memory with RDMA devices that accept DMA-BUF",
            kDmaBufRemedy);
  json["nvidia_peermem"] = works(
      device.peer_mapping, "registering its memory with other RDMA devices", kPeerMemoryRemedy);
  json["staging"] =
      works(Status::ok(), "copying through host memory when registration is impossible", "");
  json["writes_of_rdma_devices"] = in_words(device.writes);
  for (const GpuDevice& peer : driver->devices()) {
    if (peer.number == device.number) continue;
    json["peer_access_to"][std::to_string(peer.number)] =
        works(cuda_peer_access(device.number, peer.number),
              "direct access between the two; Dunlin lets the driver stage its copies for now",
              "connect them by NVLink or below one PCIe root, and disable ACS and the IOMMU's "
              "translation; nvidia-smi topo -p2p r shows what the driver finds");
  }
  return json;
}

Json kernels_of_this_build() {
  const bool has = collective::has_gpu_kernels();
  return works(has ? Status::ok() : Status(Code::kUnavailable, "nvcc was missing"),
               "reductions of collectives on GPU memory",
               "install the CUDA toolkit, and build again: meson configure BUILD -Dcuda=enabled");
}

Json driver_report() {
  Json json;
  if (const int version = cuda_version(); version > 0)
    json["cuda"] = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  if (const auto module = first_line("/sys/module/nvidia/version")) json["kernel_module"] = *module;
  return json;
}

}  // namespace

Json gpu_report(const Config& config) {
  Json json;
  Json devices = Json::object();
  if (const auto driver = load_cuda_driver()) {
    json["driver"] = driver_report();
    for (const GpuDevice& device : (*driver)->devices())
      devices[std::to_string(device.number)] = describe(*driver, device);
  } else {
    json["reason"] = std::string(driver.status().message());
    json["remedy"] =
        "with an NVIDIA GPU: install its driver (Debian: nvidia-driver, libcuda1), or start the "
        "container with it (--gpus all)";
  }
  json["kernels_of_this_build"] = kernels_of_this_build();
  if (config.verbs_gpu != VerbsGpu::kAuto) json["verbs"] = "DUNLIN_VERBS_GPU forces one way";
  json["devices"] = std::move(devices);
  return json;
}

}  // namespace dunlin::tools
