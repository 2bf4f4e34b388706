// Prints a row for each benchmark and size, as text and as JSON lines.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/dunlin-perf/job/job.h"
#include "tools/dunlin-perf/report/histogram.h"
#include "tools/dunlin-perf/report/samples.h"
#include "tools/lib/output.h"

namespace dunlin::perf {

using tools::Output;

struct Row {
  std::size_t size = 0;
  std::uint64_t iterations = 0;
  int pairs = 1;  // pairs that measured at the same time
  std::uint64_t samples = 0;
  Summary ours;
  std::vector<Bucket> histogram;            // of `ours`, if it was requested
  std::optional<Summary> limit;             // bare ping-pong or memcpy; absent unless over shm
  std::optional<double> ratio;              // ours / limit, median over chunks
  std::optional<double> round_trips_per_s;  // of all pairs
  std::optional<double> messages_per_s;     // one way, streaming, of all pairs
  std::optional<double> gbytes_per_s;
  std::optional<double> limit_gbytes_per_s;

  // `scale` turns a timed value into the reported one.
  void take(const Histogram& timed, double scale, bool tells_histogram);
  // Takes over the bare limit, which was timed in turns with `timed`.
  void take_limit(const Timer& timed, const Timer& bare, double scale);
  // Takes over the rate of messages, which have the size of the row.
  void take_rate(const Rate& rate);
};

// The bare limit beside which a benchmark measures, as the heading names it.
struct LimitName {
  const char* column;
  const char* description;
};
inline constexpr LimitName kMemcpy{"memcpy", "memcpy of the same size"};
inline constexpr LimitName kGpuCopy{"copy", "a copy of the same size on the GPU"};
// That of puts and gets between memory of the kind that the job measures.
inline const LimitName& copy_limit(Job& job) {
  return job.gpu() == nullptr ? kMemcpy : kGpuCopy;
}
inline constexpr LimitName kPingPong{"ping-pong", "the ping-pong of a bare cache line"};

nlohmann::ordered_json to_json(const Row& row);
Row row_from_json(const nlohmann::ordered_json& json);
// Makes one row for pairs that measured at the same time: the median of their medians, the worst of
// their other percentiles, and the sum of their rates.
Row merge(const std::vector<Row>& pairs);

// The facts about this run that every JSON line has.
nlohmann::ordered_json context(const Options& options, Job& job, std::uint32_t depth);

// Prints on rank 0 which GPUs have the memory, if it is that of GPUs.
Status print_gpus(Job& job, const Output& output);

// Prints on rank 0 what is measured, over which transport, and the headings of format_row()'s
// columns. The column of the limit is empty if the transport to rank 1 has none.
Status print_heading(Job& job, const Output& output, const std::string& what,
                     const LimitName& limit);
std::string format_row(const Row& row);

// Formats the percentiles and a bar for each bucket.
std::string format_histogram(const Row& row);
// Prints a row as text and as JSON, which also gets the `facts`. To be called on rank 0.
Status print_row(const Options& options, Job& job, const Output& output, std::uint32_t depth,
                 const Row& row,
                 const nlohmann::ordered_json& facts = nlohmann::ordered_json::object());

// Collects the rows of all pairs' leaders on rank 0 and prints the merged row. Collective.
Status report_pairs(const Options& options, Job& job, const Output& output, std::uint32_t depth,
                    const Row& row);

}  // namespace dunlin::perf
