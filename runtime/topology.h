// The topology of the host from hwloc: the cores that this process may use, NUMA nodes, binding.
// In a build without hwloc, the kernel supplies the counts, and bind_memory() does nothing.
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

// The topology of this host, which is read once. Any thread.
const HostTopology& host_topology();

// Text that differs between hosts: `configured` (Config::host_id) or, when it is empty, the
// kernel's boot id.
std::string host_identity(const std::string& configured);

// An estimate of the number of cores that `ranks` processes on this host share. It is the number
// that this process may use. When that looks like this process's share only, it is the number of
// cores of the host.
int cores_shared_by(int ranks);

// NUMA node of the CPU that the calling thread runs on.
int current_numa_node();

// Makes the kernel place the pages of [data, data + size) that have not been touched yet on NUMA
// node `node`; -1: the calling thread's. When the host has one node or the kernel refuses, the
// kernel's own placement stays, which is local too.
void bind_memory(void* data, std::size_t size, int node);

// Binds the calling thread to the `index`-th usable core.
Status bind_thread_to_core(int index);

}  // namespace dunlin
