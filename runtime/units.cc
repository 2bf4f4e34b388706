#include "runtime/units.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <iterator>
#include <span>

namespace dunlin {
namespace {

struct Unit {
  std::string_view name;
  double scale;
};

std::optional<double> scale_of(std::span<const Unit> units, std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return unit.scale;
  }
  return std::nullopt;
}

// Scales in nanoseconds, which are whole numbers.
constexpr Unit kTimes[] = {{"ns", 1},  {"us", 1e3},   {"ms", 1e6},
                           {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}};
// Scales in bytes per second.
constexpr Unit kRates[] = {{"b", 1.0 / 8},   {"kb", 1e3 / 8}, {"Mb", 1e6 / 8}, {"Gb", 1e9 / 8},
                           {"Tb", 1e12 / 8}, {"B", 1},        {"kB", 1e3},     {"MB", 1e6},
                           {"GB", 1e9},      {"TB", 1e12}};
constexpr Unit kSizes[] = {{"", 1},         {"B", 1},        {"K", 0x1p10}, {"k", 0x1p10},
                           {"KiB", 0x1p10}, {"kB", 1e3},     {"KB", 1e3},   {"M", 0x1p20},
                           {"m", 0x1p20},   {"MiB", 0x1p20}, {"MB", 1e6},   {"G", 0x1p30},
                           {"g", 0x1p30},   {"GiB", 0x1p30}, {"GB", 1e9},   {"T", 0x1p40},
                           {"t", 0x1p40},   {"TiB", 0x1p40}, {"TB", 1e12}};

std::optional<double> nanoseconds_in(std::string_view text, std::string_view bare_unit) {
  const auto number = take_number<double>(text);
  if (!number) return std::nullopt;
  if (*number == 0 && text.empty()) return 0.0;
  const auto scale = scale_of(kTimes, text.empty() ? bare_unit : text);
  if (!scale) return std::nullopt;
  return *number * *scale;
}

// CLI11 accepts no exponent in an integer, so whole numbers are written without one.
std::string plain_number(double value) {
  const bool is_whole = std::floor(value) == value && value < 0x1p53;
  return is_whole ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

}  // namespace

Status not_right(std::string_view text, std::string_view expected) {
  return {Code::kInvalidArgument, fmt::format("'{}' is not {}", text, expected)};
}

template <typename Number>
std::optional<Number> take_number(std::string_view& text) {
  Number number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || number < 0) return std::nullopt;
  if (!std::isfinite(static_cast<double>(number))) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  return number;
}
template std::optional<int> take_number(std::string_view& text);
template std::optional<double> take_number(std::string_view& text);

Result<double> parse_seconds(std::string_view text) {
  const auto nanoseconds = nanoseconds_in(text, "");
  if (!nanoseconds) return not_right(text, "a time with its unit, such as 300ns, 5us, 1.5ms or 2s");
  return *nanoseconds / 1e9;
}

Result<Duration> parse_duration(std::string_view text, const TimeLimits& limits) {
  const auto nanoseconds = nanoseconds_in(text, limits.bare_unit);
  // Compare in floating point first, because the number may not fit into a Duration.
  const auto limit = static_cast<double>(limits.high.count());
  if (nanoseconds && *nanoseconds <= limit) {
    const Duration duration(std::llround(*nanoseconds));
    if (duration >= limits.low && duration <= limits.high) return duration;
  }
  return not_right(
      text, fmt::format("a time from {} to {}, such as 8s or 500ms ({})", exact_time(limits.low),
                        exact_time(limits.high),
                        limits.bare_unit.empty()
                            ? "a number needs a unit"
                            : fmt::format("a number without a unit is in {}", limits.bare_unit)));
}

Result<std::size_t> parse_size(std::string_view text, const SizeLimits& limits) {
  std::string_view unit = text;
  const auto number = take_number<double>(unit);
  const auto scale = scale_of(kSizes, unit);
  if (number && scale && *number * *scale <= static_cast<double>(limits.high)) {
    const auto bytes = static_cast<std::size_t>(std::llround(*number * *scale));
    if (bytes >= limits.low) return bytes;
  }
  return not_right(text, fmt::format("a size from {} to {}, such as 4096, 64K or 25.6MB",
                                     exact_size(limits.low), exact_size(limits.high)));
}

Result<double> parse_bandwidth(std::string_view text) {
  if (text == "unlimited") return 0.0;
  std::string_view unit = text;
  const auto number = take_number<double>(unit);
  if (unit.ends_with("/s")) unit.remove_suffix(2);
  const auto scale = scale_of(kRates, unit);
  if (!number || *number == 0 || !scale) {
    return not_right(
        text, "a bandwidth, such as 100Gb, 12.5GB, 800MB/s (b: bits, B: bytes) or unlimited");
  }
  return *number * *scale;
}

Rewriter time_option(const TimeLimits& limits) {
  return [limits](std::string& text) -> std::string {
    const auto time = parse_duration(text, limits);
    if (!time) return std::string(time.status().message());
    const auto scale = scale_of(kTimes, limits.bare_unit.empty() ? "s" : limits.bare_unit);
    text = plain_number(static_cast<double>(time->count()) / scale.value());
    return "";
  };
}

Rewriter size_option(const SizeLimits& limits) {
  return [limits](std::string& text) -> std::string {
    const auto size = parse_size(text, limits);
    if (!size) return std::string(size.status().message());
    text = std::to_string(*size);
    return "";
  };
}

std::string exact_time(Duration time) {
  constexpr const char* kUnits[] = {"h", "s", "ms", "us"};
  std::size_t unit = 0;
  if (time == Duration::zero()) return "0";
  for (const Duration scale :
       {Duration(std::chrono::hours(1)), Duration(std::chrono::seconds(1)),
        Duration(std::chrono::milliseconds(1)), Duration(std::chrono::microseconds(1))}) {
    if (time % scale == Duration::zero()) return fmt::format("{}{}", time / scale, kUnits[unit]);
    ++unit;
  }
  return fmt::format("{}ns", time.count());
}

std::string exact_size(std::size_t bytes) {
  constexpr const char* kUnits[] = {"", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes != 0 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return fmt::format("{}{}", bytes, kUnits[unit]);
}

std::string format_seconds(double seconds) {
  if (seconds < 1e-6) return fmt::format("{:.4g} ns", seconds * 1e9);
  if (seconds < 1e-3) return fmt::format("{:.4g} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} s", seconds);
}

std::string format_bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1000;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, kUnits[unit]);
}

}  // namespace dunlin
