// What dunlin-perf prints: a row per benchmark and size, as text and as JSON lines.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/dunlin-perf/histogram.h"
#include "tools/dunlin-perf/job.h"
#include "tools/dunlin-perf/samples.h"
#include "tools/lib/output.h"

namespace dunlin::perf {

using tools::Output;

struct Row {
  std::size_t size = 0;
  std::uint64_t iterations = 0;
  int pairs = 1;  // that measured at the same time
  std::uint64_t samples = 0;
  Summary ours;
  std::vector<Bucket> histogram;            // of `ours`, where it was asked for
  std::optional<Summary> limit;             // bare ping-pong or memcpy; absent: no shared memory
  std::optional<double> ratio;              // ours / limit, median over chunks
  std::optional<double> round_trips_per_s;  // of all pairs
  std::optional<double> messages_per_s;     // one way, streaming, of all pairs
  std::optional<double> gbytes_per_s;
  std::optional<double> limit_gbytes_per_s;

  // `scale`: from what was timed to what is told.
  void take(const Histogram& timed, double scale, bool tells_histogram);
  // The bare limit, timed in turns with `timed`.
  void take_limit(const Timer& timed, const Timer& bare, double scale);
  // Of messages of the row's size.
  void take_rate(const Rate& rate);
};

nlohmann::ordered_json to_json(const Row& row);
Row row_from_json(const nlohmann::ordered_json& json);
// One row for pairs that measured at the same time: median of medians, worst of the other
// percentiles, sum of rates.
Row merge(const std::vector<Row>& pairs);

// Facts about this run that every JSON line carries.
nlohmann::ordered_json context(const Options& options, Job& job, std::uint32_t depth);

// On rank 0: what is measured, over which transport, and headings over format_row()'s columns.
// `limit` names the bare limit ("ping-pong", "memcpy").
Status print_heading(Job& job, const Output& output, const std::string& what, const char* limit);
std::string format_row(const Row& row);

// Percentiles and a bar for each bucket.
std::string format_histogram(const Row& row);
// As text and as JSON, there with what else is to be told. On rank 0.
Status print_row(const Options& options, Job& job, const Output& output, std::uint32_t depth,
                 const Row& row,
                 const nlohmann::ordered_json& facts = nlohmann::ordered_json::object());

// For benchmarks of pairs: brings the rows of all leaders together on rank 0, and prints.
// Collective.
Status report_pairs(const Options& options, Job& job, const Output& output, std::uint32_t depth,
                    const Row& row);

}  // namespace dunlin::perf
