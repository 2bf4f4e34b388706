// What is tried when the transport is made, so that it doesn't fail in the middle of a run.
#pragma once

#include <cstdint>

#include "transports/verbs/handle.h"

namespace dunlin::transport::verbs {

// Registers, for a moment, as much memory as one connection's lanes take for themselves:
// kUnavailable if even that is too much. With `warns`, a limit on locked memory that is likely to
// get in the way is logged. Both name the remedy.
Status check_locked_memory(const ProtectionDomain& domain, std::uint32_t queue_depth, bool warns);

}  // namespace dunlin::transport::verbs
