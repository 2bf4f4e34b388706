#include "tools/dunlin-sim/report.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tools/dunlin-sim/network/units.h"

namespace dunlin::simulate {
namespace {

using Json = nlohmann::ordered_json;

double us(Duration duration) {
  return static_cast<double>(duration.count()) / 1e3;
}

double share_waited(const Report& report) {
  const double all = to_seconds(report.step.sum());
  return all == 0 ? 0 : to_seconds(report.waited.sum()) / all;
}

}  // namespace

Duration Samples::quantile(double share) const {
  if (values_.empty()) return {};
  std::vector<Duration> values = values_;
  const double place = std::ceil(share * static_cast<double>(values.size())) - 1;
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(std::max(place, 0.0));
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

Duration Samples::sum() const {
  return std::accumulate(values_.begin(), values_.end(), Duration());
}

void Report::take(const transport::sim::Network& network) {
  statistics = network.statistics();
  trace_hash = network.trace_hash();
}

void Report::add(const Report& run) {
  steps += run.steps;
  virtual_time += run.virtual_time;
  statistics.events += run.statistics.events;
  statistics.messages += run.statistics.messages;
  statistics.bytes += run.statistics.bytes;
  statistics.refusals += run.statistics.refusals;
  statistics.real += run.statistics.real;
  trace_hash = trace_hash * 31 + run.trace_hash;
}

std::uint64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

Json to_json(const Report& report) {
  const auto summary = [](const Samples& samples) {
    return Json{{"p50", us(samples.quantile(0.5))},
                {"p99", us(samples.quantile(0.99))},
                {"max", us(samples.max())}};
  };
  Json json{{"virtual_us", us(report.virtual_time)},
            {"steps_done", report.steps},
            {"step_us", summary(report.step)},
            {"waited_us", summary(report.waited)},
            {"waited_share", share_waited(report)}};
  for (const Fact& fact : report.facts) json[fact.name] = fact.value;
  const auto& statistics = report.statistics;
  json["events"] = statistics.events;
  json["messages"] = statistics.messages;
  json["bytes"] = statistics.bytes;
  json["refusals"] = statistics.refusals;
  json["trace_hash"] = fmt::format("{:016x}", report.trace_hash);
  json["real"] = {{"seconds", to_seconds(statistics.real)},
                  {"events_per_s", statistics.events_per_second()},
                  {"memory_bytes", peak_memory_bytes()}};
  return json;
}

std::string to_text(const Report& report) {
  const auto summary = [](const Samples& samples) {
    return fmt::format("p50 {}, p99 {}, max {}", format_duration(samples.quantile(0.5)),
                       format_duration(samples.quantile(0.99)), format_duration(samples.max()));
  };
  const auto& statistics = report.statistics;
  std::string text = report.table;
  if (text.empty()) {
    text = fmt::format("  virtual time  {}\n", format_duration(report.virtual_time));
    text += fmt::format("  a step        {}\n", summary(report.step));
    text += fmt::format("  waited in it  {}; {:.1f} % of all time\n", summary(report.waited),
                        100 * share_waited(report));
  }
  for (const Fact& fact : report.facts) {
    if (!fact.text.empty()) text += fmt::format("  {}\n", fact.text);
  }
  text += fmt::format("  on the wire   {} messages, {}\n", statistics.messages,
                      format_bytes(static_cast<double>(statistics.bytes)));
  text += fmt::format("  simulated     {} events in {:.2f} s, {:.2f} million/s, {} of memory",
                      statistics.events, to_seconds(statistics.real),
                      statistics.events_per_second() / 1e6,
                      format_bytes(static_cast<double>(peak_memory_bytes())));
  return text;
}

}  // namespace dunlin::simulate
