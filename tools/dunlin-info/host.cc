#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/membarrier.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/fd.h"
#include "runtime/memory/lock_limit.h"
#include "runtime/topology.h"
#include "tools/dunlin-info/report.h"
#include "tools/dunlin-info/sysfs.h"

namespace dunlin::tools {
namespace {

// With less space in /dev/shm, UCX's shared memory may fail. Dunlin's own is not in there.
constexpr std::size_t kEnoughSharedMemory = std::size_t{64} << 20;

template <typename T>
void put(Json& json, const char* name, const std::optional<T>& value) {
  if (value) json[name] = *value;
}

Json caches() {
  Json found = Json::array();
  for (int index = 0;; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    const auto level = first_number(folder + "level");
    const auto kibibytes = first_number(folder + "size");  // "48K"
    if (!level || !kibibytes) return found;
    Json cache;
    cache["level"] = *level;
    put(cache, "type", first_line(folder + "type"));
    cache["size_bytes"] = *kibibytes * 1024;
    put(cache, "shared_by_cpus", first_line(folder + "shared_cpu_list"));
    found.push_back(std::move(cache));
  }
}

Json works(bool is_there, int error, const char* use) {
  Json json;
  json["works"] = is_there;
  if (!is_there) json["reason"] = std::strerror(error);
  json["used_for"] = use;
  return json;
}

std::string numeric_address(const sockaddr* address) {
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST] = "";
  return getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

}  // namespace

Json host_report() {
  const HostTopology& host = host_topology();
  Json json;
  utsname names{};
  if (uname(&names) == 0) {
    json["name"] = names.nodename;
    json["kernel"] = fmt::format("{} {}", names.release, names.machine);
  }
  put(json, "boot_id", first_line("/proc/sys/kernel/random/boot_id"));
  if (!host.cpu_model.empty()) json["cpu_model"] = host.cpu_model;
  json["usable_cores"] = host.cores;
  json["usable_hardware_threads"] = host.processing_units;
  json["numa_nodes"] = host.numa_nodes;
  json["numa_node_of_this_thread"] = current_numa_node();
  json["caches"] = caches();
  return json;
}

Json memory_report() {
  Json json;
  put(json, "total_bytes", meminfo("MemTotal"));
  put(json, "available_bytes", meminfo("MemAvailable"));
  Json huge;
  put(huge, "size_bytes", meminfo("Hugepagesize"));
  put(huge, "reserved", meminfo("HugePages_Total"));
  put(huge, "free", meminfo("HugePages_Free"));
  put(huge, "transparent_for_shared_memory",
      first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  if (meminfo("HugePages_Free").value_or(0) == 0) {
    huge["remedy"] =
        "ordinary pages are used; to reserve 512 huge ones: sysctl vm.nr_hugepages=512";
  }
  json["huge_pages"] = std::move(huge);

  Json shared;
  struct statvfs file_system {};
  if (statvfs("/dev/shm", &file_system) == 0) {
    const std::size_t free = file_system.f_bavail * file_system.f_frsize;
    shared["size_bytes"] = file_system.f_blocks * file_system.f_frsize;
    shared["free_bytes"] = free;
    if (free < kEnoughSharedMemory) {
      shared["remedy"] =
          "UCX may fail here: enlarge it (containers: --shm-size=1g); the transport shm does not "
          "need it";
    }
  } else {
    shared["reason"] = std::strerror(errno);
  }
  json["dev_shm"] = std::move(shared);

  Json locked;
  const auto limit = locked_memory_limit();
  locked["is_unlimited"] = !limit.has_value();
  put(locked, "size_bytes", limit);
  if (limit && *limit < kEnoughLockedMemory) {
    locked["remedy"] = fmt::format("RDMA devices will refuse memory: {}", locked_memory_remedy());
  }
  json["locked_memory_limit"] = std::move(locked);
  return json;
}

Json kernel_report() {
  Json json;
  const long barriers = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  json["membarrier"] =
      works(barriers >= 0 && (barriers & MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0,
            barriers < 0 ? errno : ENOSYS,
            "waking sleepers without a fence per notification (shm); without it, senders fence");
  const Fd process(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  json["pidfd_open"] =
      works(process.get() >= 0, errno,
            "noticing the death of a local peer at once; without it, its connection tells");
  const Fd memory(memfd_create("dunlin-info", MFD_CLOEXEC));
  json["memfd_create"] =
      works(memory.get() >= 0, errno, "memory that other processes can map (required by shm)");
  return json;
}

Json network_report() {
  Json json = Json::object();
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return json;
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    Json& interface = json[entry->ifa_name];
    if (interface.is_null()) {
      const std::string folder = fmt::format("/sys/class/net/{}/", entry->ifa_name);
      interface["is_up"] =
          (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0;
      put(interface, "mtu", first_number(folder + "mtu"));
      // It is -1 or unreadable if the interface has no speed of its own.
      if (const auto speed = first_number(folder + "speed"); speed && *speed > 0)
        interface["speed_mbit_s"] = *speed;
      interface["addresses"] = Json::array();
    }
    if (entry->ifa_addr == nullptr) continue;
    if (entry->ifa_addr->sa_family != AF_INET && entry->ifa_addr->sa_family != AF_INET6) continue;
    interface["addresses"].push_back(numeric_address(entry->ifa_addr));
  }
  freeifaddrs(all);
  return json;
}

}  // namespace dunlin::tools
