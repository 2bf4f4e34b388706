// The only header of the verbs transport that builtin.cc includes. It includes no verbs header.
#pragma once

#include <memory>
#include <string>

#include "runtime/gpu/driver.h"
#include "transports/transport.h"

namespace dunlin::transport::verbs {

// Makes the transport. kUnavailable, which says what is missing, if no RDMA device can be used.
Result<std::unique_ptr<Transport>> create_transport(const TransportContext& context);

// See transports/gpu_access.h.
Status find_gpu_access(const std::string& device, Config& config, const GpuDriver& driver);

}  // namespace dunlin::transport::verbs
