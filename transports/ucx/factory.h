// What the fabric sees of the ucx transport: how to make one. No UCX header.
#pragma once

#include <memory>

#include "transports/transport.h"

namespace dunlin::transport::ucx {

// kUnavailable when UCX finds nothing to communicate with.
Result<std::unique_ptr<Transport>> create_transport(const TransportContext& context);

}  // namespace dunlin::transport::ucx
