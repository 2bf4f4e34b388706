#include "tools/dunlin-sim/network/units.h"

#include <fmt/format.h>

#include <optional>

namespace dunlin::simulate {
namespace {

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

Result<Duration> parse_duration(std::string_view text) {
  return dunlin::parse_duration(text, {.high = std::chrono::hours(1)});
}

Result<transport::sim::Straggler> parse_straggler(std::string_view text) {
  std::string_view rest = text;
  const auto rank = take_number<int>(rest);
  const bool has_both = rank && take(rest, ":");
  const auto factor = has_both ? take_number<double>(rest) : std::nullopt;
  if (!factor || *factor == 0 || !rest.empty()) {
    return not_right(text, "RANK:FACTOR, such as 3:5 when rank 3 computes 5 times as long");
  }
  return transport::sim::Straggler{Rank(*rank), *factor};
}

Result<transport::sim::Jitter> parse_jitter(std::string_view text) {
  using Kind = transport::sim::Jitter::Kind;
  std::string_view time = text;
  const Kind kind = take(time, "exponential:") ? Kind::kExponential : Kind::kUniform;
  if (kind == Kind::kUniform) take(time, "uniform:");
  const auto scale = parse_duration(time);
  if (!scale) return not_right(text, "TIME, uniform:TIME or exponential:TIME, such as uniform:2us");
  return transport::sim::Jitter{kind, *scale};
}

Result<Kill> parse_kill(std::string_view text) {
  std::string_view rest = text;
  const auto rank = take_number<int>(rest);
  if (rank && take(rest, "@")) {
    if (const auto at = parse_duration(rest)) return Kill{Rank(*rank), *at};
  }
  return not_right(text, "RANK@TIME, such as 3@2ms");
}

std::string format_duration(Duration duration) {
  const auto count = static_cast<double>(duration.count());
  if (count < 1e3) return fmt::format("{} ns", duration.count());
  if (count < 1e6) return fmt::format("{:.2f} us", count / 1e3);
  if (count < 1e9) return fmt::format("{:.3f} ms", count / 1e6);
  return fmt::format("{:.3f} s", count / 1e9);
}

}  // namespace dunlin::simulate
