#include "tools/dunlin-sim/units.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

namespace dunlin::simulate {
namespace {

Status wrong(std::string_view text, const char* what) {
  return {Code::kInvalidArgument, fmt::format("'{}' is not {}", text, what)};
}

// The number that the text begins with, not negative; what follows it is left.
std::optional<double> take_number(std::string_view& text) {
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  return number;
}

std::optional<int> take_rank(std::string_view& text) {
  int rank = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (read.ec != std::errc() || rank < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  return rank;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

Result<Duration> parse_duration(std::string_view text) {
  constexpr const char* kRight =
      "a time up to an hour with its unit, such as 300ns, 5us, 1.5ms, 2s";
  constexpr double kLongest = 3600e9;
  std::string_view unit = text;
  const auto number = take_number(unit);
  if (!number) return wrong(text, kRight);
  double scale = 0;
  if (unit == "ns" || (unit.empty() && *number == 0)) scale = 1;
  if (unit == "us") scale = 1e3;
  if (unit == "ms") scale = 1e6;
  if (unit == "s") scale = 1e9;
  if (scale == 0 || *number * scale > kLongest) return wrong(text, kRight);
  return Duration(std::llround(*number * scale));
}

Result<double> parse_bandwidth(std::string_view text) {
  constexpr const char* kRight =
      "a bandwidth, such as 100Gb, 12.5GB, 800MB/s (b: bits, B: bytes) or unlimited";
  if (text == "unlimited") return 0.0;
  std::string_view unit = text;
  const auto number = take_number(unit);
  if (!number || *number == 0) return wrong(text, kRight);
  double scale = 1;
  if (take(unit, "k") || take(unit, "K")) {
    scale = 1e3;
  } else if (take(unit, "M")) {
    scale = 1e6;
  } else if (take(unit, "G")) {
    scale = 1e9;
  } else if (take(unit, "T")) {
    scale = 1e12;
  }
  if (take(unit, "b")) {
    scale /= 8;
  } else if (!take(unit, "B")) {
    return wrong(text, kRight);
  }
  take(unit, "/s");
  if (!unit.empty()) return wrong(text, kRight);
  return *number * scale;
}

Result<transport::sim::Straggler> parse_straggler(std::string_view text) {
  std::string_view rest = text;
  const auto rank = take_rank(rest);
  const bool has_both = rank && take(rest, ":");
  const auto factor = has_both ? take_number(rest) : std::nullopt;
  if (!factor || *factor == 0 || !rest.empty()) {
    return wrong(text, "RANK:FACTOR, such as 3:5 for a rank 3 that computes 5 times as long");
  }
  return transport::sim::Straggler{Rank(*rank), *factor};
}

Result<transport::sim::Jitter> parse_jitter(std::string_view text) {
  using Kind = transport::sim::Jitter::Kind;
  std::string_view time = text;
  const Kind kind = take(time, "exponential:") ? Kind::kExponential : Kind::kUniform;
  if (kind == Kind::kUniform) take(time, "uniform:");
  const auto scale = parse_duration(time);
  if (!scale) return wrong(text, "TIME, uniform:TIME or exponential:TIME, such as uniform:2us");
  return transport::sim::Jitter{kind, *scale};
}

Result<Kill> parse_kill(std::string_view text) {
  std::string_view rest = text;
  const auto rank = take_rank(rest);
  if (rank && take(rest, "@")) {
    if (const auto at = parse_duration(rest)) return Kill{Rank(*rank), *at};
  }
  return wrong(text, "RANK@TIME, such as 3@2ms");
}

std::string format_duration(Duration duration) {
  const auto count = static_cast<double>(duration.count());
  if (count < 1e3) return fmt::format("{} ns", duration.count());
  if (count < 1e6) return fmt::format("{:.2f} us", count / 1e3);
  if (count < 1e9) return fmt::format("{:.3f} ms", count / 1e6);
  return fmt::format("{:.3f} s", count / 1e9);
}

std::string format_bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1000;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, kUnits[unit]);
}

}  // namespace dunlin::simulate
