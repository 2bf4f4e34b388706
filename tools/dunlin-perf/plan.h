// Plan and Pacer: how often a benchmark repeats what it measures. The repetitions come in chunks,
// in turns with the bare limit; the leading rank decides how long the next chunk is, by number or
// by time, and the others follow.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/clock.h"
#include "tools/dunlin-perf/shared.h"

namespace dunlin::perf {

struct Plan {
  std::uint64_t iterations = 1;  // where there is no duration
  std::uint64_t per_chunk = 1;
  std::uint64_t warmup = 1;
  Duration duration{};  // 0: by number
  bool is_each_timed = false;
};
// For messages of `size` bytes.
Plan plan_for(std::size_t size, const Shared& options);

class Pacer {
 public:
  // `each`: what one repetition and its share of the limit took in the warm-up.
  Pacer(const Plan& plan, Duration each) : plan_(plan), each_(each) {}

  // Repetitions of the next chunk, once the one before is done; 0: it is over.
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
