#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tools/dunlin-perf/benchmarks/consistency.h"

namespace dunlin::perf {

std::uint64_t Tally::reduces() const {
  return std::accumulate(by_inputs.begin(), by_inputs.end(), std::uint64_t{0});
}

void Tally::add(const collective::ReduceReport& report, std::size_t in_degree) {
  ++by_inputs[report.inputs];
  if (report.inputs == in_degree) ++complete;
  torn += report.torn;
  stale += report.stale;
  bytes_sent += report.bytes_sent;
  waited_seconds += to_seconds(report.waited);
}

void Tally::add(const Tally& other) {
  by_inputs.resize(std::max(by_inputs.size(), other.by_inputs.size()));
  for (std::size_t i = 0; i < other.by_inputs.size(); ++i) by_inputs[i] += other.by_inputs[i];
  complete += other.complete;
  torn += other.torn;
  stale += other.stale;
  wrong += other.wrong;
  bytes_sent += other.bytes_sent;
  seconds = std::max(seconds, other.seconds);
  waited_seconds += other.waited_seconds;
}

nlohmann::ordered_json to_json(const Tally& tally) {
  return {{"reduces", tally.reduces()},
          {"by_inputs", tally.by_inputs},
          {"complete", tally.complete},
          {"torn_inputs", tally.torn},
          {"stale_inputs", tally.stale},
          {"wrong_content", tally.wrong},
          {"bytes_sent", tally.bytes_sent},
          {"seconds", tally.seconds},
          {"waited_seconds", tally.waited_seconds}};
}

Tally tally_from_json(const nlohmann::ordered_json& json) {
  Tally tally;
  tally.by_inputs = json.at("by_inputs").get<std::vector<std::uint64_t>>();
  tally.complete = json.at("complete");
  tally.torn = json.at("torn_inputs");
  tally.stale = json.at("stale_inputs");
  tally.wrong = json.at("wrong_content");
  tally.bytes_sent = json.at("bytes_sent");
  tally.seconds = json.at("seconds");
  tally.waited_seconds = json.at("waited_seconds");
  return tally;
}

std::string format_consistency_heading(std::size_t in_degree) {
  std::string text = fmt::format("{:<10}", "inputs:");
  for (std::size_t inputs = 0; inputs <= in_degree; ++inputs) text += fmt::format(" {:>7}", inputs);
  return text + fmt::format(" | {:>9} {:>8} {:>8} {:>7} | {:>9} {:>7}", "all", "torn", "stale",
                            "wrong", "reduces/s", "waiting");
}

std::string format_consistency(collective::SyncMode mode, const Tally& tally,
                               std::size_t in_degree) {
  const auto percent = [total = static_cast<double>(tally.reduces())](std::uint64_t part) {
    return 100 * static_cast<double>(part) / total;
  };
  std::string text = fmt::format("{:<10}", to_string(mode));
  for (std::size_t inputs = 0; inputs <= in_degree; ++inputs) {
    const std::uint64_t reduces = inputs < tally.by_inputs.size() ? tally.by_inputs[inputs] : 0;
    text += reduces == 0 ? fmt::format(" {:>7}", "-") : fmt::format(" {:>6.2f}%", percent(reduces));
  }
  return text + fmt::format(" | {:>8.3f}% {:>8} {:>8} {:>7} | {:>9.0f} {:>6.1f}%",
                            percent(tally.complete), tally.torn, tally.stale, tally.wrong,
                            static_cast<double>(tally.reduces()) / tally.seconds,
                            100 * tally.waited_seconds / tally.seconds);
}

}  // namespace dunlin::perf
