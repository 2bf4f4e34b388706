#include "tools/dunlin-perf/report/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "perf_version.h"
#include "runtime/print.h"
#include "runtime/topology.h"

namespace dunlin::perf {
namespace {

using Json = nlohmann::ordered_json;

Json summary_json(const Summary& summary) {
  return {{"p50_us", summary.p50_us},    {"p90_us", summary.p90_us}, {"p99_us", summary.p99_us},
          {"p99.9_us", summary.p999_us}, {"max_us", summary.max_us}, {"mean_us", summary.mean_us},
          {"min_us", summary.min_us}};
}

Summary summary_from(const Json& json) {
  return {json.at("p50_us"), json.at("p90_us"),  json.at("p99_us"), json.at("p99.9_us"),
          json.at("max_us"), json.at("mean_us"), json.at("min_us")};
}

Json histogram_json(const std::vector<Bucket>& buckets) {
  if (buckets.empty()) return {};
  Json json = Json::array();
  for (const Bucket& bucket : buckets) {
    json.push_back({{"from_us", bucket.from_us}, {"to_us", bucket.to_us}, {"count", bucket.count}});
  }
  return json;
}

std::vector<Bucket> histogram_from(const Json& json) {
  std::vector<Bucket> buckets;
  if (json.is_null()) return buckets;
  for (const Json& bucket : json) {
    buckets.push_back({bucket.at("from_us"), bucket.at("to_us"), bucket.at("count")});
  }
  return buckets;
}

Json optional_json(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

std::optional<double> optional_from(const Json& json, const char* name) {
  if (json.at(name).is_null()) return std::nullopt;
  return json.at(name).get<double>();
}

// Returns the values that `get` reads from the rows; nothing unless all rows have one.
template <typename Get>
std::optional<std::vector<double>> collect(const std::vector<Row>& rows, Get get) {
  std::vector<double> values;
  for (const Row& row : rows) {
    const std::optional<double> value = get(row);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

std::optional<double> sum_of(const std::vector<Row>& rows, std::optional<double> Row::*field) {
  const auto values = collect(rows, [field](const Row& row) { return row.*field; });
  if (!values) return std::nullopt;
  double sum = 0;
  for (const double value : *values) sum += value;
  return sum;
}

Summary merge_summaries(const std::vector<Summary>& parts) {
  std::vector<double> p50;
  std::vector<double> mean;
  Summary merged = parts.front();
  for (const Summary& part : parts) {
    p50.push_back(part.p50_us);
    mean.push_back(part.mean_us);
    merged.p90_us = std::max(merged.p90_us, part.p90_us);
    merged.p99_us = std::max(merged.p99_us, part.p99_us);
    merged.p999_us = std::max(merged.p999_us, part.p999_us);
    merged.max_us = std::max(merged.max_us, part.max_us);
    merged.min_us = std::min(merged.min_us, part.min_us);
  }
  merged.p50_us = median(p50);
  merged.mean_us = median(mean);
  return merged;
}

// A row of the table. It has at most 100 columns.
constexpr const char* kColumns =
    "{:>10} {:>8} {:>8} {:>8} {:>8} |{:>9} {:>5} |{:>7} {:>7} |{:>8} {:>8}";

// Formats a number with as many decimals as fit, at most `decimals`. Without a number: "-".
std::string cell(const std::optional<double>& value, std::size_t width, int decimals,
                 double scale = 1) {
  if (!value) return "-";
  std::string text;
  for (; decimals >= 0; --decimals) {
    text = fmt::format("{:.{}f}", *value * scale, decimals);
    if (text.size() <= width) break;
  }
  return text;
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

}  // namespace

void Row::take(const Histogram& timed, double scale, bool tells_histogram) {
  samples = timed.count();
  ours = timed.summary(scale);
  if (tells_histogram) histogram = timed.buckets(scale);
}

void Row::take_limit(const Timer& timed, const Timer& bare, double scale) {
  limit = bare.histogram().summary(scale);
  ratio = paired_ratio(timed, bare);
}

void Row::take_rate(const Rate& rate) {
  messages_per_s = rate.per_second();
  gbytes_per_s = rate.per_second() * static_cast<double>(size) / 1e9;
}

Json to_json(const Row& row) {
  Json json{{"size", row.size},
            {"iterations", row.iterations},
            {"pairs", row.pairs},
            {"samples", row.samples}};
  json.update(summary_json(row.ours));
  json["limit"] = row.limit ? summary_json(*row.limit) : Json();
  json["ratio"] = optional_json(row.ratio);
  json["round_trips_per_s"] = optional_json(row.round_trips_per_s);
  json["messages_per_s"] = optional_json(row.messages_per_s);
  json["gbytes_per_s"] = optional_json(row.gbytes_per_s);
  json["limit_gbytes_per_s"] = optional_json(row.limit_gbytes_per_s);
  json["histogram"] = histogram_json(row.histogram);
  return json;
}

Row row_from_json(const Json& json) {
  Row row;
  row.size = json.at("size");
  row.iterations = json.at("iterations");
  row.pairs = json.at("pairs");
  row.samples = json.at("samples");
  row.ours = summary_from(json);
  if (!json.at("limit").is_null()) row.limit = summary_from(json.at("limit"));
  row.ratio = optional_from(json, "ratio");
  row.round_trips_per_s = optional_from(json, "round_trips_per_s");
  row.messages_per_s = optional_from(json, "messages_per_s");
  row.gbytes_per_s = optional_from(json, "gbytes_per_s");
  row.limit_gbytes_per_s = optional_from(json, "limit_gbytes_per_s");
  row.histogram = histogram_from(json.at("histogram"));
  return row;
}

Row merge(const std::vector<Row>& pairs) {
  Row merged = pairs.front();
  merged.pairs = static_cast<int>(pairs.size());
  merged.samples = 0;
  std::vector<Summary> ours;
  std::vector<Summary> limits;
  std::vector<std::vector<Bucket>> histograms;
  for (const Row& row : pairs) {
    merged.samples += row.samples;
    ours.push_back(row.ours);
    histograms.push_back(row.histogram);
    if (row.limit) limits.push_back(*row.limit);
  }
  merged.ours = merge_summaries(ours);
  merged.histogram = merge(histograms);
  if (!limits.empty()) merged.limit = merge_summaries(limits);
  if (const auto ratios = collect(pairs, [](const Row& row) { return row.ratio; })) {
    merged.ratio = median(*ratios);
  }
  merged.round_trips_per_s = sum_of(pairs, &Row::round_trips_per_s);
  merged.messages_per_s = sum_of(pairs, &Row::messages_per_s);
  merged.gbytes_per_s = sum_of(pairs, &Row::gbytes_per_s);
  merged.limit_gbytes_per_s = sum_of(pairs, &Row::limit_gbytes_per_s);
  return merged;
}

Json context(const Options& options, Job& job, std::uint32_t depth) {
  const Rank other(job.size() > 1 ? 1 : 0);
  Json json{{"bench", to_string(options.bench)},
            {"transport", std::string(job.fabric().transport_of(other))},
            {"wait", job.wait_policy()},
            {"ranks", job.size()}};
  if (depth != 0) json["depth"] = depth;
  if (options.queue_pairs != 0) json["qp_count"] = options.queue_pairs;
  if (options.duration != Duration::zero()) json["duration_s"] = to_seconds(options.duration);
  if (options.is_bidirectional) json["bidirectional"] = true;
  if (options.is_put) json["put"] = true;
  json["memory"] = job.is_wrapped() ? "wrapped" : job.gpu() == nullptr ? "host" : "cuda";
  for (const GpuOfRank& gpu : job.gpus()) {
    json["gpus"].push_back({{"rank", gpu.rank},
                            {"number", gpu.number},
                            {"name", gpu.name},
                            {"pci_bus_id", gpu.pci_bus_id}});
  }
  json["host"] = host_name();
  json["cpu"] = host_topology().cpu_model;
  json["cores"] = host_topology().host_cores;
  json["commit"] = DUNLIN_PERF_COMMIT;
  json["time"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  return json;
}

Status print_gpus(Job& job, const Output& output) {
  // The ranks of each GPU.
  std::map<std::string, std::string> ranks;
  for (const GpuOfRank& gpu : job.gpus()) {
    std::string& text = ranks[fmt::format("GPU {}, {}, {}", gpu.number, gpu.name, gpu.pci_bus_id)];
    text += fmt::format("{}{}", text.empty() ? "" : ",", gpu.rank);
  }
  for (const auto& [gpu, text] : ranks)
    DUNLIN_TRY(output.text(fmt::format("memory of {}: rank {}", gpu, text)));
  return Status::ok();
}

Status print_heading(Job& job, const Output& output, const std::string& what,
                     const LimitName& limit) {
  if (!job.is_root()) return Status::ok();
  constexpr Rank kPeer(1);
  const bool has_limit = job.has_limit(kPeer);
  std::string title = fmt::format("over {}: {}", job.fabric().transport_of(kPeer), what);
  if (has_limit) title += fmt::format("; limit: {}", limit.description);
  for (std::size_t at = 0; (at = title.find("; ", at)) != std::string::npos; at += 2)
    title.replace(at, 2, ";\n  ");
  return output.text(title + '\n' +
                     fmt::format(kColumns, "size", "repeats", "p50", "p99", "min",
                                 has_limit ? limit.column : "limit", "ratio", "ours", "limit",
                                 "trips", "messages") +
                     '\n' +
                     fmt::format(kColumns, "bytes", "", "us", "us", "us", "p50 us", "", "GB/s",
                                 "GB/s", "1000/s", "1000/s"));
}

std::string format_row(const Row& row) {
  const auto us = [](double value) { return cell(value, 8, 3); };
  return fmt::format(kColumns, row.size, row.iterations, us(row.ours.p50_us), us(row.ours.p99_us),
                     us(row.ours.min_us), row.limit ? us(row.limit->p50_us) : "-",
                     cell(row.ratio, 5, 2), cell(row.gbytes_per_s, 7, 2),
                     cell(row.limit_gbytes_per_s, 7, 2), cell(row.round_trips_per_s, 8, 1, 1e-3),
                     cell(row.messages_per_s, 8, 1, 1e-3));
}

std::string format_histogram(const Row& row) {
  constexpr double kWidth = 50;
  const Summary& ours = row.ours;
  std::string text =
      fmt::format("{} samples, us: p50 {:.3f}, p90 {:.3f}, p99 {:.3f}, p99.9 {:.3f}, max {:.3f}",
                  row.samples, ours.p50_us, ours.p90_us, ours.p99_us, ours.p999_us, ours.max_us);
  std::uint64_t most = 1;
  for (const Bucket& bucket : row.histogram) most = std::max(most, bucket.count);
  for (const Bucket& bucket : row.histogram) {
    const double share = static_cast<double>(bucket.count) / static_cast<double>(most);
    const auto bar = static_cast<std::size_t>(std::ceil(share * kWidth));
    text += fmt::format("\n{:>14.3f} .. {:>12.3f} us {:>12} {}", bucket.from_us, bucket.to_us,
                        bucket.count, std::string(bar, '#'));
  }
  return text;
}

Status print_row(const Options& options, Job& job, const Output& output, std::uint32_t depth,
                 const Row& row, const Json& facts) {
  DUNLIN_TRY(output.text(format_row(row)));
  if (options.has_histogram) DUNLIN_TRY(output.text(format_histogram(row)));
  Json json = to_json(row);
  json.update(facts);
  return output.json(context(options, job, depth), json);
}

Status report_pairs(const Options& options, Job& job, const Output& output, std::uint32_t depth,
                    const Row& row) {
  DUNLIN_ASSIGN(const auto texts, job.gather(job.ranks(2), to_json(row).dump()));
  if (!job.is_root()) return Status::ok();
  std::vector<Row> rows;
  for (const std::string& text : texts) {
    rows.push_back(row_from_json(Json::parse(text)));
  }
  return print_row(options, job, output, depth, merge(rows));
}

}  // namespace dunlin::perf
