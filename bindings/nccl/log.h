// The log of the plugin. All that Dunlin logs in this process goes to the function that NCCL hands
// over, and nothing to standard error. Any thread.
#pragma once

#include "bindings/nccl/abi.h"
#include "runtime/config.h"
#include "runtime/status.h"

namespace dunlin::nccl {

// Until the first call, the log is Dunlin's own. A null function drops messages.
void log_to(abi::Logger function, LogLevel level);

// NCCL's code for a status. Busy is not an error.
abi::Result code_of(const Status& status);
// Logs an error, and returns NCCL's code for it.
abi::Result report(const Status& status);

}  // namespace dunlin::nccl
