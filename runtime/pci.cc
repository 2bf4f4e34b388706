#include "runtime/pci.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "runtime/topology.h"

namespace dunlin {
namespace {

namespace fs = std::filesystem;

// The path from the PCIe root to the device: "pci0000:3a", "0000:3a:00.0", ... The elements between
// the first and the last are bridges. Empty when the device does not exist or is not on PCIe.
std::vector<std::string> path_from_root(const fs::path& device) {
  std::error_code error;
  std::vector<std::string> path;
  for (const fs::path& part : fs::canonical(device, error)) {
    const bool is_root =
        part.native().starts_with("pci") && part.native().find(':') != std::string::npos;
    if (!path.empty() || is_root) path.push_back(part);
  }
  return path;
}

Proximity by_nodes(std::optional<int> one, std::optional<int> other) {
  return !one || !other || *one == *other ? Proximity::kNode : Proximity::kSystem;
}

}  // namespace

const char* in_words(Proximity proximity) {
  switch (proximity) {
    case Proximity::kSwitch:
      return "behind one PCIe switch";
    case Proximity::kSwitches:
      return "behind PCIe switches of one tree";
    case Proximity::kHostBridge:
      return "on one PCIe root";
    case Proximity::kNode:
      return "on one NUMA node, as far as the kernel knows";
    case Proximity::kSystem:
      return "on different NUMA nodes";
  }
  return "?";
}

std::optional<int> numa_node_of(const fs::path& device) {
  int node = -1;
  std::ifstream(device / "numa_node") >> node;
  return node < 0 ? std::nullopt : std::optional(node);
}

Proximity proximity(const fs::path& one, const fs::path& other) {
  const std::vector<std::string> here = path_from_root(one);
  const std::vector<std::string> there = path_from_root(other);
  const auto shared =
      std::mismatch(here.begin(), here.end(), there.begin(), there.end()).first - here.begin();
  if (shared == 0) return by_nodes(numa_node_of(one), numa_node_of(other));
  if (shared == 1) return Proximity::kHostBridge;
  // A switch is one upstream bridge, which both paths contain, and one downstream bridge on each.
  const auto length = static_cast<std::ptrdiff_t>(std::max(here.size(), there.size()));
  return length - shared <= 2 ? Proximity::kSwitch : Proximity::kSwitches;
}

Proximity proximity_to_this_thread(const fs::path& device) {
  return by_nodes(numa_node_of(device), current_numa_node());
}

}  // namespace dunlin
