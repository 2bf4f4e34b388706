// What only a simulation reads and prints of times, beside tools/lib/units.h.
#pragma once

#include <string>
#include <string_view>

#include "runtime/clock.h"
#include "runtime/status.h"
#include "tools/lib/units.h"
#include "transports/sim/options.h"

namespace dunlin::simulate {

using tools::format_bytes;
using tools::parse_bandwidth;

// A number and its unit: 300ns, 5us, 1.5ms, 2s; up to an hour. 0 needs none.
Result<Duration> parse_duration(std::string_view text);
// RANK:FACTOR.
Result<transport::sim::Straggler> parse_straggler(std::string_view text);
// uniform:TIME, exponential:TIME, or a TIME alone, which is uniform.
Result<transport::sim::Jitter> parse_jitter(std::string_view text);

struct Kill {
  Rank rank;
  Duration at{};
};
// RANK@TIME.
Result<Kill> parse_kill(std::string_view text);

// With the unit that suits it: "300 ns", "2.50 us", "1.204 ms".
std::string format_duration(Duration duration);

}  // namespace dunlin::simulate
