// The only header of the tcp transport that builtin.cc includes.
#pragma once

#include <memory>

#include "transports/transport.h"

namespace dunlin::transport::tcp {

// Makes the transport. kUnavailable if this host has no network interface that it could use.
Result<std::unique_ptr<Transport>> create_transport(const TransportContext& context);

// See transports/libraries.h.
void load_libraries();

}  // namespace dunlin::transport::tcp
