// The network devices that UCX uses.
#pragma once

#include <string>
#include <vector>

#include "runtime/config.h"

namespace dunlin::transport::ucx {

// The active ports of this host's RDMA devices, as UCX names them: "mlx5_0:1".
std::vector<std::string> rdma_ports();

// The value of UCX's NET_DEVICES: the RDMA ports, and the one interface that leads to the
// coordinator, so that UCX does not listen on others. If the coordinator's address is a loopback
// address, all ranks are on this host, and the interface is that of loopback. The value is empty,
// so that UCX chooses, if UCX_NET_DEVICES is set, if DUNLIN_BOOTSTRAP_ADDRESS names no coordinator
// (PMIx, torchrun), or if this host knows the coordinator's name only as its own loopback address.
std::string network_devices(const Config& config);

}  // namespace dunlin::transport::ucx
