// Expiry: a wait that ended before what it waited for has happened.
#pragma once

#include "runtime/status.h"

namespace dunlin::collective {

// True if the wait ran out of time. The operation that it waited for is still in progress.
inline bool is_expiry(const Status& status) {
  return status.code() == Code::kDeadlineExceeded || status.code() == Code::kPeerStalled;
}

}  // namespace dunlin::collective
