#include "collectives/training/slowdown.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <utility>

#include "runtime/random.h"

namespace dunlin::training {
namespace {

// A tenth of a second becomes a day. A computation of up to two hours stays within a Duration.
constexpr double kMostFactor = 1e6;

// Parses all of `text` as a number.
template <typename T>
bool parse(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<SlowdownRule> parse_slowdown(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return Status(Code::kInvalidArgument,
                  fmt::format("slowdown '{}': {}; give WORKER:FACTOR or random:FACTOR", text, why));
  };
  const auto colon = text.find(':');
  if (colon == text.npos) return refuse("the ':' is missing");
  const std::string_view target = text.substr(0, colon);
  const std::string_view factor = text.substr(colon + 1);
  SlowdownRule rule;
  rule.is_random = target == "random";
  int worker = -1;
  if (!rule.is_random && (!parse(target, worker) || worker < 0))
    return refuse(fmt::format("'{}' is neither the number of a worker nor 'random'", target));
  if (!rule.is_random) rule.rank = Rank(worker);
  if (!parse(factor, rule.factor) || !std::isfinite(rule.factor) || rule.factor < 0)
    return refuse(fmt::format("'{}' is not a factor of 0 or more", factor));
  if (rule.factor > kMostFactor)
    return refuse(fmt::format("the factor {} is above {}", factor, kMostFactor));
  return rule;
}

Slowdown::Slowdown(std::vector<SlowdownRule> rules, Rank rank, int workers, std::uint64_t seed)
    : rules_(std::move(rules)), rank_(rank), workers_(workers), seed_(seed) {}

Duration Slowdown::after(std::uint64_t iteration, Duration computed) const {
  double factor = 0;
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    const SlowdownRule& rule = rules_[i];
    // Each rule of each worker has its own random stream.
    const std::uint64_t stream = i << 32 | static_cast<std::uint64_t>(rank_.value());
    const bool applies = rule.is_random ? Random(seed_, stream, iteration).uniform() * workers_ < 1
                                        : rule.rank == rank_;
    if (applies) factor += rule.factor;
  }
  return std::chrono::duration_cast<Duration>(computed * factor);
}

}  // namespace dunlin::training
