// How waits end without what was waited for.
#pragma once

#include "runtime/status.h"

namespace dunlin::collective {

// The time was over: the wait has ended, what was waited for goes on.
inline bool is_expiry(const Status& status) {
  return status.code() == Code::kDeadlineExceeded || status.code() == Code::kPeerStalled;
}

}  // namespace dunlin::collective
