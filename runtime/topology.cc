#include "runtime/topology.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#ifdef DUNLIN_HAVE_HWLOC
#include <hwloc.h>
#endif

namespace dunlin {
namespace {

#ifdef DUNLIN_HAVE_HWLOC

// Loading the topology takes milliseconds, so it is kept until the process ends.
hwloc_topology_t hwloc() {
  static hwloc_topology_t topology = [] {
    hwloc_topology_t made = nullptr;
    if (hwloc_topology_init(&made) != 0) return static_cast<hwloc_topology_t>(nullptr);
    if (hwloc_topology_load(made) != 0) {
      hwloc_topology_destroy(made);
      return static_cast<hwloc_topology_t>(nullptr);
    }
    return made;
  }();
  return topology;
}

// The CPUs that the affinity mask of this process allows.
struct UsableCpus {
  hwloc_bitmap_t set = hwloc_bitmap_alloc();
  UsableCpus() {
    if (hwloc_get_cpubind(hwloc(), set, HWLOC_CPUBIND_PROCESS) != 0) hwloc_bitmap_fill(set);
  }
  ~UsableCpus() { hwloc_bitmap_free(set); }
  UsableCpus(const UsableCpus&) = delete;
  UsableCpus& operator=(const UsableCpus&) = delete;
};

void read_hwloc(HostTopology& host) {
  if (hwloc() == nullptr) return;
  const UsableCpus usable;
  host.core_cpus.clear();
  hwloc_obj_t core = nullptr;
  while ((core = hwloc_get_next_obj_by_type(hwloc(), HWLOC_OBJ_CORE, core)) != nullptr) {
    if (!hwloc_bitmap_intersects(core->cpuset, usable.set)) continue;
    hwloc_bitmap_t both = hwloc_bitmap_dup(core->cpuset);
    hwloc_bitmap_and(both, both, usable.set);
    host.core_cpus.push_back(hwloc_bitmap_first(both));
    hwloc_bitmap_free(both);
  }
  host.host_cores = hwloc_get_nbobjs_by_type(hwloc(), HWLOC_OBJ_CORE);
  host.numa_nodes = std::max(1, hwloc_get_nbobjs_by_type(hwloc(), HWLOC_OBJ_NUMANODE));
  if (hwloc_obj_t l3 = hwloc_get_obj_by_type(hwloc(), HWLOC_OBJ_L3CACHE, 0)) {
    host.l3_bytes = l3->attr->cache.size;
  }
  if (hwloc_obj_t package = hwloc_get_obj_by_type(hwloc(), HWLOC_OBJ_PACKAGE, 0)) {
    if (const char* model = hwloc_obj_get_info_by_name(package, "CPUModel")) host.cpu_model = model;
  }
}

#endif

HostTopology read_host() {
  HostTopology host;
  host.host_cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    host.processing_units = CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &allowed)) host.core_cpus.push_back(cpu);
    }
  }
#ifdef DUNLIN_HAVE_HWLOC
  read_hwloc(host);
#endif
  host.cores = std::max<int>(1, static_cast<int>(host.core_cpus.size()));
  host.host_cores = std::max(host.host_cores, host.cores);
  return host;
}

}  // namespace

const HostTopology& host_topology() {
  static const HostTopology host = read_host();
  return host;
}

int cores_shared_by(int ranks) {
  const HostTopology& host = host_topology();
  const bool is_bound_to_its_share = host.cores * ranks <= host.host_cores;
  return is_bound_to_its_share ? host.host_cores : host.cores;
}

int current_numa_node() {
  unsigned cpu = 0;
  unsigned node = 0;
  return getcpu(&cpu, &node) == 0 ? static_cast<int>(node) : 0;
}

void bind_memory([[maybe_unused]] void* data, [[maybe_unused]] std::size_t size,
                 [[maybe_unused]] int node) {
#ifdef DUNLIN_HAVE_HWLOC
  if (hwloc() == nullptr || host_topology().numa_nodes < 2) return;
  const int wanted = node >= 0 ? node : current_numa_node();
  if (hwloc_obj_t object =
          hwloc_get_numanode_obj_by_os_index(hwloc(), static_cast<unsigned>(wanted))) {
    hwloc_set_area_membind(hwloc(), data, size, object->nodeset, HWLOC_MEMBIND_BIND,
                           HWLOC_MEMBIND_BYNODESET);
  }
#endif
}

Status bind_thread_to_core(int index) {
  const auto& cpus = host_topology().core_cpus;
  if (index < 0 || index >= static_cast<int>(cpus.size())) {
    return {Code::kOutOfRange, fmt::format("core {} of {}", index, cpus.size())};
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpus[static_cast<std::size_t>(index)], &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0)
    return Status::from_errno("sched_setaffinity", errno);
  return Status::ok();
}

std::string host_identity(const std::string& configured) {
  if (!configured.empty()) return configured;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace dunlin
