#include "tools/lib/units.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>

namespace dunlin::tools {
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

constexpr Unit kTimes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
constexpr Unit kRates[] = {{"b", 1.0 / 8},   {"kb", 1e3 / 8}, {"Mb", 1e6 / 8}, {"Gb", 1e9 / 8},
                           {"Tb", 1e12 / 8}, {"B", 1},        {"kB", 1e3},     {"MB", 1e6},
                           {"GB", 1e9},      {"TB", 1e12}};
constexpr Unit kSizes[] = {{"", 1},       {"B", 1},        {"K", 0x1p10},   {"KiB", 0x1p10},
                           {"kB", 1e3},   {"M", 0x1p20},   {"MiB", 0x1p20}, {"MB", 1e6},
                           {"G", 0x1p30}, {"GiB", 0x1p30}, {"GB", 1e9}};

}  // namespace

Status not_right(std::string_view text, const char* what) {
  return {Code::kInvalidArgument, fmt::format("'{}' is not {}", text, what)};
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
  std::string_view unit = text;
  const auto number = take_number<double>(unit);
  if (number && *number == 0 && unit.empty()) return 0.0;
  const auto scale = scale_of(kTimes, unit);
  if (!number || !scale)
    return not_right(text, "a time with its unit, such as 300ns, 5us, 1.5ms, 2s");
  return *number * *scale;
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

Result<std::size_t> parse_size(std::string_view text) {
  constexpr double kLargest = 0x1p48;
  std::string_view unit = text;
  const auto number = take_number<double>(unit);
  const auto scale = scale_of(kSizes, unit);
  if (!number || !scale || *number * *scale > kLargest)
    return not_right(text, "a size in bytes up to 2^48, such as 4096, 64KiB, 25.6MB");
  return static_cast<std::size_t>(std::llround(*number * *scale));
}

Result<collective::Grid> parse_grid(std::string_view text) {
  constexpr int kMost = 1 << 15;
  std::string_view rest = text;
  const auto rows = take_number<int>(rest);
  if (rows && rest.starts_with('x')) {
    rest.remove_prefix(1);
    const auto columns = take_number<int>(rest);
    const auto suits = [](std::optional<int> n) { return n && *n >= 1 && *n <= kMost; };
    if (suits(rows) && suits(columns) && rest.empty()) return collective::Grid{*rows, *columns};
  }
  return not_right(text, "a grid of ROWSxCOLUMNS, such as 4x8");
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

}  // namespace dunlin::tools
