// The network devices that the plugin offers to NCCL, each of which is a way for Dunlin to reach
// other processes: a port of an RDMA device, TCP, or, for one host only, shared memory.
#pragma once

#include <string>
#include <vector>

#include "runtime/config.h"
#include "runtime/gpu/driver.h"

namespace dunlin::nccl {

struct Device {
  std::string name;      // for NCCL's log, such as "verbs:mlx5_0:1"
  std::string pci_path;  // in sysfs; empty: it has none
  int speed = 0;         // Mb/s
  int port = 0;
  Config config;  // for the endpoints of this device
  // Ok if GPU memory can be registered with the connections of this device; otherwise why not.
  Status gpu_access;
};

// The active RDMA ports of this host, or TCP if there are none. If the environment has
// DUNLIN_TRANSPORTS, the devices are those of its transports. `gpu`: the driver of the GPUs, or why
// there is none.
Result<std::vector<Device>> find_devices(const Environment& environment,
                                         const Result<std::shared_ptr<GpuDriver>>& gpu);

}  // namespace dunlin::nccl
