// Reads and writes times and events of a simulation, in addition to runtime/units.h.
#pragma once

#include <string>
#include <string_view>

#include "runtime/clock.h"
#include "runtime/status.h"
#include "runtime/units.h"
#include "transports/sim/options.h"

namespace dunlin::simulate {

// Reads a time up to an hour.
Result<Duration> parse_duration(std::string_view text);
// Reads RANK:FACTOR.
Result<transport::sim::Straggler> parse_straggler(std::string_view text);
// Reads uniform:TIME, exponential:TIME, or a TIME alone, which is uniform.
Result<transport::sim::Jitter> parse_jitter(std::string_view text);

struct Kill {
  Rank rank;
  Duration at{};
};
// Reads RANK@TIME.
Result<Kill> parse_kill(std::string_view text);

// Writes a time with the unit that suits it: "300 ns", "2.50 us", "1.204 ms".
std::string format_duration(Duration duration);

}  // namespace dunlin::simulate
