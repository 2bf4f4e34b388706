// Reads RDMA devices through libibverbs. Builds without it do not have this.
#pragma once

#include <string>
#include <vector>

#include "tools/dunlin-info/report.h"
#include "transports/verbs/device/device.h"

struct ibv_context;

namespace dunlin::tools {

using Addresses = std::vector<transport::verbs::DeviceAddress>;

// The devices by name. `usable`: the addresses that can be used; the report gives the reason why
// others cannot.
Json rdma_devices(const Addresses& usable);

Json rdma_port(const std::string& device, ibv_context* context, int number,
               const Addresses& usable);

}  // namespace dunlin::tools
