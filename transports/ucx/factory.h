// The only header of the ucx transport that builtin.cc includes. It includes no UCX header.
#pragma once

#include <memory>

#include "transports/transport.h"

namespace dunlin::transport::ucx {

// Makes the transport. kUnavailable if UCX finds nothing to communicate over.
Result<std::unique_ptr<Transport>> create_transport(const TransportContext& context);

}  // namespace dunlin::transport::ucx
