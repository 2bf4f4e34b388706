// Checks made when the transport is created, so that it does not fail in the middle of a run.
#pragma once

#include <cstdint>

#include "transports/verbs/device/handle.h"

namespace dunlin::transport::verbs {

// Registers, for a moment, as much memory as the lanes to one peer need for themselves.
// kUnavailable if even that is too much. With `warns`, logs a warning if the limit on locked memory
// is likely to be too low. Both messages name the remedy.
Status check_locked_memory(const ProtectionDomain& domain, std::uint32_t queue_depth, bool warns);

}  // namespace dunlin::transport::verbs
