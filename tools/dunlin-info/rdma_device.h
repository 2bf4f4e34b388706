// What libibverbs says about RDMA devices. Not in builds without it.
#pragma once

#include <string>
#include <vector>

#include "tools/dunlin-info/report.h"
#include "transports/verbs/device.h"

struct ibv_context;

namespace dunlin::tools {

using Addresses = std::vector<transport::verbs::DeviceAddress>;

// By name. `usable`: where an address is missing, it is said why.
Json rdma_devices(const Addresses& usable);

Json rdma_port(const std::string& device, ibv_context* context, int number,
               const Addresses& usable);

}  // namespace dunlin::tools
