// The host as hwloc sees it: cores that this process may use, NUMA nodes, binding.
// Built without hwloc, the counts come from the kernel and memory stays where the kernel puts it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/status.h"

namespace dunlin {

struct HostTopology {
  std::string cpu_model;
  int cores = 1;             // physical cores that this process may use
  int processing_units = 1;  // hardware threads that it may use
  int host_cores = 1;        // physical cores of the host (container), bound or not
  int numa_nodes = 1;
  std::size_t l3_bytes = 0;    // 0: not known
  std::vector<int> core_cpus;  // for each usable core: the OS number of its first hardware thread
};

// Of this host; found once, then kept. Any thread.
const HostTopology& host_topology();

// What tells this host from others: `configured` (Config::host_id), or the kernel's boot id.
std::string host_identity(const std::string& configured);

// The cores that `ranks` processes of this host share, as far as one of them can tell: those that
// this process may use or, where it seems to be bound to its own fair share of them, the host's.
int cores_shared_by(int ranks);

// NUMA node of the CPU that the calling thread runs on.
int current_numa_node();

// Prefers `node` (-1: the caller's) for pages of [data, data + size) that aren't touched yet. A
// host with one node, or a kernel that refuses, leaves the kernel's own choice, which is local as
// well.
void bind_memory(void* data, std::size_t size, int node);

// Binds the calling thread to the `index`-th usable core.
Status bind_thread_to_core(int index);

}  // namespace dunlin
