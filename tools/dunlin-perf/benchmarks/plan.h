// Plan and Pacer: which sizes a benchmark measures and how often it repeats each. The repetitions
// come in chunks, in turns with the bare limit. The leading rank decides how long the next chunk
// is, by number or by time, and the other ranks follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/clock.h"
#include "tools/dunlin-perf/job/shared.h"

namespace dunlin::perf {

// The sizes of a sweep: `smallest`, its multiples by powers of 4 (after 0 come 8, 32, ...), and
// `largest`, which is not less than `smallest`.
std::vector<std::size_t> sweep(std::size_t smallest, std::size_t largest);

struct Plan {
  std::uint64_t iterations = 1;  // without a duration
  std::uint64_t per_chunk = 1;
  std::uint64_t warmup = 1;
  Duration duration{};  // 0: `iterations` count
  bool is_each_timed = false;
};
// For messages of `size` bytes.
Plan plan_for(std::size_t size, const Shared& options);

class Pacer {
 public:
  // `each`: the time of one repetition and its share of the limit in the warm-up.
  Pacer(const Plan& plan, Duration each) : plan_(plan), each_(each) {}

  // Returns the repetitions of the next chunk; 0: the measurement is over. To be called when the
  // chunk before is done.
  std::uint64_t next(TimePoint now);
  std::uint64_t done() const { return done_; }

 private:
  std::uint64_t next_by_time(TimePoint now);

  Plan plan_;
  Duration each_;
  TimePoint began_{};
  std::uint64_t done_ = 0;
};

}  // namespace dunlin::perf
