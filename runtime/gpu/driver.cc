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

}  // namespace dunlin
