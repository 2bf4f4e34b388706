// The network devices that UCX uses.
#pragma once

#include <string>
#include <vector>

#include "runtime/config.h"

namespace dunlin::transport::ucx {

// The ports of this host's RDMA devices, as UCX names them: "mlx5_0:1".
std::vector<std::string> rdma_ports();

// The value of UCX's NET_DEVICES: the ports of the RDMA devices, and of the Ethernet interfaces
// only the one that leads to the coordinator, since UCX listens on each that it uses. Empty, which
// leaves the choice to UCX, if UCX_NET_DEVICES is set or that interface is not known.
std::string network_devices(const Config& config);

}  // namespace dunlin::transport::ucx
