// Where devices of this host hang on PCIe, as sysfs tells it. A device is its folder there:
// /sys/bus/pci/devices/0000:3b:00.0, or /sys/class/infiniband/mlx5_0/device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace dunlin {

// What the way between two devices leads through, the shortest first; in brackets what
// `nvidia-smi topo -m` calls it.
enum class Proximity : std::uint8_t {
  kSwitch,      // one PCIe switch or bridge (PIX)
  kSwitches,    // several of them (PXB)
  kHostBridge,  // the root of their PCIe tree (PHB)
  kNode,        // the NUMA node that both belong to, or that the kernel names for neither (NODE)
  kSystem,      // the interconnect of NUMA nodes (SYS)
};

// "behind one PCIe switch", ...
const char* in_words(Proximity proximity);

// Nothing: the kernel names none, or there is no such device.
std::optional<int> numa_node_of(const std::filesystem::path& device);

// Of devices that exist; what isn't on PCIe is as near as its NUMA node.
Proximity proximity(const std::filesystem::path& one, const std::filesystem::path& other);

// To the calling thread: kNode or kSystem.
Proximity proximity_to_this_thread(const std::filesystem::path& device);

}  // namespace dunlin
