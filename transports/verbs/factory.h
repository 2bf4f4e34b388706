// The only header of the verbs transport that builtin.cc includes. It includes no verbs header.
#pragma once

#include <memory>

#include "transports/transport.h"

namespace dunlin::transport::verbs {

// Makes the transport. kUnavailable, which says what is missing, if no RDMA device can be used.
Result<std::unique_ptr<Transport>> create_transport(const TransportContext& context);

}  // namespace dunlin::transport::verbs
