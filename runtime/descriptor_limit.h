// The number of files that this process may have open.
#pragma once

#include <cstdint>

#include "runtime/status.h"

namespace dunlin {

// Raises the process's soft limit to `wanted`, or as far as the hard limit permits. Returns what it
// is then; a higher limit stays. The limit is inherited by the processes that this one starts.
std::uint64_t raise_descriptor_limit(std::uint64_t wanted);

// The same for `needed` descriptors. kResourceExhausted, with what to do, if they are not
// permitted; `what` begins the error ("a job of 4 ranks").
Status require_descriptors(std::uint64_t needed, const std::string& what);

}  // namespace dunlin
