#include "runtime/gpu/driver.h"

#include <fmt/format.h>
#include <sched.h>

namespace dunlin {

Status await(GpuStream& stream, const Clock& clock, TimePoint deadline, std::string_view what) {
  for (;;) {
    Status status = stream.poll();
    if (status.is_error()) return std::move(status).with_context(what);
    if (status.is_ok()) return status;
    if (clock.now() >= deadline)
      return {Code::kDeadlineExceeded,
              fmt::format("{}: the GPU has not completed it in time", what)};
    sched_yield();
  }
}

Status await_copy(GpuStream& stream, Status started, const Clock& clock, TimePoint deadline,
                  std::string_view what) {
  Status copied = std::move(started);
  if (copied.is_ok()) copied = await(stream, clock, deadline, what);
  if (!copied.is_ok()) (void)await(stream, clock, deadline, what);
  return copied;
}

}  // namespace dunlin
