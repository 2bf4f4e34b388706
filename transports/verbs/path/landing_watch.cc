#include "transports/verbs/path/landing_watch.h"

#include <algorithm>

#include "transports/verbs/constants.h"
#include "transports/verbs/engine.h"
#include "transports/verbs/path/operation.h"
#include "transports/verbs/path/send_window.h"

namespace dunlin::transport::verbs {

void LandingWatch::change_waiting(bool is_waiting) {
  is_waiting_ = is_waiting;
  engine_.count_landing_waits(is_waiting ? 1 : -1);
}

bool LandingWatch::is_poll_due(TimePoint now, const Operation& flush, const SendWindow& window) {
  if (!is_waiting_ || now < next_poll_) return false;
  next_poll_ = now + kLandingInterval;
  const bool has_read =
      flush.is_posted() && window.is_returned(std::max(flush.progress.last_request, last_poll_));
  return has_read && window.has_request_room();
}

}  // namespace dunlin::transport::verbs
