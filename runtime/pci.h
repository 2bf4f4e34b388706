// The PCIe topology of this host, read from sysfs. A device is given by its folder in sysfs, such
// as /sys/bus/pci/devices/0000:3b:00.0 or /sys/class/infiniband/mlx5_0/device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace dunlin {

// What the path between two devices crosses, from the shortest path to the longest. The names of
// `nvidia-smi topo -m` stand in parentheses.
enum class Proximity : std::uint8_t {
  kSwitch,      // one PCIe switch or bridge (PIX)
  kSwitches,    // several PCIe switches or bridges (PXB)
  kHostBridge,  // the root of their PCIe tree (PHB)
  kNode,        // one NUMA node, or at least one device has no known node (NODE)
  kSystem,      // the interconnect between NUMA nodes (SYS)
};

// The words for messages, such as "behind one PCIe switch".
const char* in_words(Proximity proximity);

// Returns nullopt when the device does not exist or the kernel knows no NUMA node for it.
std::optional<int> numa_node_of(const std::filesystem::path& device);

// Both devices must exist. A device that is not on PCIe is compared by its NUMA node.
Proximity proximity(const std::filesystem::path& one, const std::filesystem::path& other);

// The proximity between the device and the CPU of the calling thread: kNode or kSystem.
Proximity proximity_to_this_thread(const std::filesystem::path& device);

}  // namespace dunlin
