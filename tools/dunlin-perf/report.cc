#include "tools/dunlin-perf/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "perf_version.h"
#include "runtime/print.h"
#include "runtime/topology.h"

namespace dunlin::perf {
namespace {

using Json = nlohmann::ordered_json;

Json summary_json(const Summary& summary) {
  return {{"p50_us", summary.p50_us},
          {"p99_us", summary.p99_us},
          {"mean_us", summary.mean_us},
          {"min_us", summary.min_us}};
}

Summary summary_from(const Json& json) {
  return {json.at("p50_us"), json.at("p99_us"), json.at("mean_us"), json.at("min_us")};
}

Json optional_json(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

std::optional<double> optional_from(const Json& json, const char* name) {
  if (json.at(name).is_null()) return std::nullopt;
  return json.at(name).get<double>();
}

// Of what `get` reads from each row; nothing unless all of them have it.
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
    merged.p99_us = std::max(merged.p99_us, part.p99_us);
    merged.min_us = std::min(merged.min_us, part.min_us);
  }
  merged.p50_us = median(p50);
  merged.mean_us = median(mean);
  return merged;
}

std::string cell(const std::optional<double>& value, double scale, int decimals) {
  return value ? fmt::format("{:.{}f}", *value * scale, decimals) : "-";
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

}  // namespace

Json to_json(const Row& row) {
  Json json{{"size", row.size}, {"iterations", row.iterations}, {"pairs", row.pairs}};
  json.update(summary_json(row.ours));
  json["limit"] = row.limit ? summary_json(*row.limit) : Json();
  json["ratio"] = optional_json(row.ratio);
  json["round_trips_per_s"] = optional_json(row.round_trips_per_s);
  json["messages_per_s"] = optional_json(row.messages_per_s);
  json["gbytes_per_s"] = optional_json(row.gbytes_per_s);
  json["limit_gbytes_per_s"] = optional_json(row.limit_gbytes_per_s);
  return json;
}

Row row_from_json(const Json& json) {
  Row row;
  row.size = json.at("size");
  row.iterations = json.at("iterations");
  row.pairs = json.at("pairs");
  row.ours = summary_from(json);
  if (!json.at("limit").is_null()) row.limit = summary_from(json.at("limit"));
  row.ratio = optional_from(json, "ratio");
  row.round_trips_per_s = optional_from(json, "round_trips_per_s");
  row.messages_per_s = optional_from(json, "messages_per_s");
  row.gbytes_per_s = optional_from(json, "gbytes_per_s");
  row.limit_gbytes_per_s = optional_from(json, "limit_gbytes_per_s");
  return row;
}

Row merge(const std::vector<Row>& pairs) {
  Row merged = pairs.front();
  merged.pairs = static_cast<int>(pairs.size());
  std::vector<Summary> ours;
  std::vector<Summary> limits;
  for (const Row& row : pairs) {
    ours.push_back(row.ours);
    if (row.limit) limits.push_back(*row.limit);
  }
  merged.ours = merge_summaries(ours);
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
  json["host"] = host_name();
  json["cpu"] = host_topology().cpu_model;
  json["cores"] = host_topology().host_cores;
  json["commit"] = DUNLIN_PERF_COMMIT;
  json["time"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  return json;
}

Result<std::unique_ptr<Output>> Output::open(const std::string& json_path) {
  std::unique_ptr<Output> output(new Output());
  if (json_path.empty()) return output;
  output->json_ = json_path == "-" ? stdout : std::fopen(json_path.c_str(), "w");
  if (output->json_ == nullptr) return Status::from_errno("open " + json_path, errno);
  return output;
}

Output::~Output() {
  if (json_ != nullptr && json_ != stdout) std::fclose(json_);
}

Status Output::text(const std::string& text) const {
  return prints_text() ? print(text + "\n") : Status::ok();
}

Status Output::json(const Json& context, const Json& row) const {
  if (json_ == nullptr) return Status::ok();
  Json line = context;
  line.update(row);
  return print(line.dump() + "\n", json_);
}

std::string format_heading(const char* limit) {
  return fmt::format(
      "{:>9} {:>10} {:>9} {:>9} {:>9} {:>9} | {:>9} {:>6} | {:>8} {:>8} | {:>10} {:>9}\n"
      "{:>9} {:>10} {:>9} {:>9} {:>9} {:>9} | {:>9} {:>6} | {:>8} {:>8} | {:>10} {:>9}",
      "size", "iterations", "p50", "p99", "mean", "min", limit, "ratio", "ours", limit,
      "round trip", "message", "bytes", "", "us", "us", "us", "us", "p50 us", "", "GB/s", "GB/s",
      "1000/s", "1000/s");
}

std::string format_row(const Row& row) {
  const std::string limit = row.limit ? fmt::format("{:.3f}", row.limit->p50_us) : "-";
  return fmt::format(
      "{:>9} {:>10} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} | {:>9} {:>6} | {:>8} {:>8} | {:>10} {:>9}",
      row.size, row.iterations, row.ours.p50_us, row.ours.p99_us, row.ours.mean_us, row.ours.min_us,
      limit, cell(row.ratio, 1, 2), cell(row.gbytes_per_s, 1, 2),
      cell(row.limit_gbytes_per_s, 1, 2), cell(row.round_trips_per_s, 1e-3, 1),
      cell(row.messages_per_s, 1e-3, 1));
}

Status report_pairs(const Options& options, Job& job, const Output& output, std::uint32_t depth,
                    const Row& row) {
  DUNLIN_ASSIGN(const auto texts, job.gather(job.ranks(2), to_json(row).dump()));
  if (!job.is_root()) return Status::ok();
  std::vector<Row> rows;
  for (const std::string& text : texts) {
    rows.push_back(row_from_json(Json::parse(text)));
  }
  const Row merged = merge(rows);
  DUNLIN_TRY(output.text(format_row(merged)));
  return output.json(context(options, job, depth), to_json(merged));
}

}  // namespace dunlin::perf
