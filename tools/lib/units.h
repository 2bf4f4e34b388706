// Times, rates and sizes as they are written on the command line. Each parser takes the whole text,
// and says of a wrong one what is right.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/schedule/team.h"
#include "runtime/status.h"

namespace dunlin::tools {

// "'<text>' is not <what>".
Status not_right(std::string_view text, const char* what);
// The number that the text begins with, finite and not negative; what follows it is left.
template <typename Number>  // int, double
std::optional<Number> take_number(std::string_view& text);

// A number and its unit, from 0 on: 0.1ns, 2us, 1.5ms, 1s; 0 needs none. In seconds.
Result<double> parse_seconds(std::string_view text);
// In bytes per second. 100Gb and 12.5GB are the same (b bits, B bytes; k, M, G, T: powers of 1000;
// "/s" may follow); "unlimited" is 0.
Result<double> parse_bandwidth(std::string_view text);
// In bytes: 65536, 64KiB, 25.6MB (K, M, G: powers of 1024, as with i; kB, MB, GB: of 1000).
Result<std::size_t> parse_size(std::string_view text);
// ROWSxCOLUMNS.
Result<collective::Grid> parse_grid(std::string_view text);

// With the unit that suits it: "300 ns", "2.5 us", "1.204 ms".
std::string format_seconds(double seconds);
std::string format_bytes(double bytes);

}  // namespace dunlin::tools
