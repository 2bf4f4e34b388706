// Times, rates and the like as they are written on the command line. Each parser takes the whole
// text, and says of a wrong one what is right.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/clock.h"
#include "runtime/status.h"
#include "transports/sim/options.h"

namespace dunlin::simulate {

// A number and its unit: 300ns, 5us, 1.5ms, 2s; up to an hour. 0 needs none.
Result<Duration> parse_duration(std::string_view text);
// In bytes per second. 100Gb and 12.5GB are the same (b bits, B bytes; k, M, G, T: powers of 1000;
// "/s" may follow); "unlimited" is 0.
Result<double> parse_bandwidth(std::string_view text);
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
std::string format_bytes(double bytes);

}  // namespace dunlin::simulate
