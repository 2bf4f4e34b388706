// Times, sizes and bandwidths as text, such as "8s", "16K" and "100Gb". The settings and all
// command lines use these parsers. A parser reads the whole text. Its error is kInvalidArgument,
// and its message quotes the text and says what is expected: "'8' is not a time from ...".
//
//   times       ns, us, ms, s, min, h
//   sizes       K, M, G, T (or k, m, g, t) and KiB, MiB, GiB, TiB: powers of 1024
//               kB (or KB), MB, GB, TB: powers of 1000; B or no unit: bytes
//   bandwidths  b (bits) or B (bytes) after k, M, G or T: powers of 1000; "/s" may follow
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/clock.h"
#include "runtime/status.h"

namespace dunlin {

// The error of a parser: "'TEXT' is not EXPECTED".
Status not_right(std::string_view text, std::string_view expected);

// Removes the number at the beginning of the text and returns it. Returns nothing, and leaves the
// text unchanged, when the text does not begin with a number that is finite and not negative.
template <typename Number>  // int, double
std::optional<Number> take_number(std::string_view& text);

// A time in seconds, which may have fractions of a nanosecond. 0 needs no unit.
Result<double> parse_seconds(std::string_view text);

struct TimeLimits {
  Duration low{};
  Duration high = std::chrono::hours(1'000'000);
  // The unit of a number that has none; empty: only 0 may have none.
  std::string_view bare_unit = {};
};
Result<Duration> parse_duration(std::string_view text, const TimeLimits& limits = {});

struct SizeLimits {
  std::size_t low = 0;
  std::size_t high = std::size_t{1} << 48;
};
Result<std::size_t> parse_size(std::string_view text, const SizeLimits& limits = {});

// A bandwidth in bytes per second; "unlimited" is 0.
Result<double> parse_bandwidth(std::string_view text);

// Functions for CLI::Validator. They replace the text of an option by a plain number, which CLI11
// then converts to the option's type. A time becomes a number of limits.bare_unit (of seconds when
// that is empty), a size a number of bytes. The function returns "" or the message of the error.
using Rewriter = std::function<std::string(std::string&)>;
Rewriter time_option(const TimeLimits& limits);
Rewriter size_option(const SizeLimits& limits = {});

// The exact value in the largest unit that gives a whole number, such as "90s" or "16KiB". The
// parsers read it.
std::string exact_time(Duration time);
std::string exact_size(std::size_t bytes);

// The rounded value in a suitable unit, for people: "300 ns", "1.204 ms", "12.5 GB".
std::string format_seconds(double seconds);
std::string format_bytes(double bytes);

}  // namespace dunlin
