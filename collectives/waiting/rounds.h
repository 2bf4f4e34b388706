// A wait for something that has work to do at certain times even if nothing arrives. Owner thread
// of the fabric only.
#pragma once

#include <algorithm>
#include <optional>

#include "collectives/waiting/expiry.h"
#include "transports/fabric.h"

namespace dunlin::collective {

// Calls `test()` as Fabric::wait() does, until it returns anything but kBusy or `deadline` comes,
// and also whenever the time `next_event()` has come. Returns the errors of Fabric::wait().
template <typename Test, typename Awaited, typename NextEvent>
Status wait_in_rounds(transport::Fabric& fabric, Test&& test, Awaited&& awaited, TimePoint deadline,
                      NextEvent&& next_event) {
  TimePoint round_ends = deadline;
  bool is_sooner = false;  // next_event() became earlier than the end of this round
  const auto step = [&]() -> Status {
    if (Status status = test(); !status.is_busy()) return status;
    const std::optional<TimePoint> event = next_event();
    is_sooner = event && *event < round_ends && fabric.clock().now() < deadline;
    return is_sooner ? Status(Code::kDeadlineExceeded, "the round is over") : Status::busy();
  };
  Status status;
  do {
    const TimePoint now = fabric.clock().now();
    const std::optional<TimePoint> event = next_event();
    round_ends = event && now < deadline ? std::min(*event, deadline) : deadline;
    status = fabric.wait(step, awaited, std::max(round_ends - now, Duration::zero()));
  } while (is_expiry(status) && (is_sooner || round_ends < deadline));
  return status;
}

}  // namespace dunlin::collective
