// What the fabric sees of the verbs transport: how to make one. No verbs header.
#pragma once

#include <memory>

#include "transports/transport.h"

namespace dunlin::transport::verbs {

// kUnavailable, with what is missing, where no RDMA device can be used.
Result<std::unique_ptr<Transport>> create_transport(const TransportContext& context);

}  // namespace dunlin::transport::verbs
