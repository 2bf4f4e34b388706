// The network devices that UCX uses.
#pragma once

#include <string>
#include <vector>

#include "runtime/config.h"

namespace dunlin::transport::ucx {

// The active ports of this host's RDMA devices, as UCX names them: "mlx5_0:1".
std::vector<std::string> rdma_ports();

// The value of UCX's NET_DEVICES. If the coordinator's address is a loopback address, all ranks are
// on this host. Then the value names the loopback interface and the RDMA ports, so that UCX does
// not listen on others. Otherwise, or if UCX_NET_DEVICES is set, it is empty: UCX chooses.
std::string network_devices(const Config& config);

}  // namespace dunlin::transport::ucx
