// all-reduce, reduce-scatter, all-gather, broadcast, all-to-all, reduce: blocking calls, one after
// the other. A barrier aligns the ranks before each chunk. The sample of a chunk is its mean time
// per call, on the rank where that is largest.
#include "tools/dunlin-perf/benchmarks/collective.h"

#include <fmt/format.h>

#include "tools/dunlin-perf/benchmarks/benchmarks.h"
#include "tools/dunlin-perf/benchmarks/call_means.h"

namespace dunlin::perf {
namespace {

Status print_collective_heading(const Options& options, Job& job, const Output& output,
                                const Subject& subject) {
  if (!job.is_root()) return Status::ok();
  return output.text(
      fmt::format("over {}: {} of {} ranks, {}, {}, {} memory: one blocking call, the mean of the "
                  "slowest rank per "
                  "chunk\n"
                  "{:>10} {:>19} {:>10} {:>11} {:>11} {:>11} | {:>9} {:>9}\n"
                  "{:>10} {:>19} {:>10} {:>11} {:>11} {:>11} | {:>9} {:>9}",
                  job.fabric().transport_of(Rank(1)), to_string(options.bench), job.size(),
                  options.collective.type, subject.is_in_place() ? "in place" : "out of place",
                  memory_name(options), "size", "algorithm", "iterations", "min", "p50", "max",
                  "alg", "bus", "bytes", "", "", "us", "us", "us", "GB/s", "GB/s"));
}

Status measure_one(const Options& options, Job& job, Subject& subject, const Output& output) {
  if (options.checks) DUNLIN_TRY(subject.check());
  DUNLIN_TRY(subject.clear());
  Row row;
  DUNLIN_ASSIGN(const std::vector<double> means,
                call_means(job, subject.host_communicator(), plan_for(subject.size(), options),
                           row.iterations, [&] { return subject.once(); }));
  if (!job.is_root()) return Status::ok();
  row.size = subject.size();
  take_means(row, means);
  row.gbytes_per_s = static_cast<double>(row.size) / (row.ours.p50_us * 1e3);
  const double bus = *row.gbytes_per_s * subject.bus_factor();
  DUNLIN_TRY(output.text(
      fmt::format("{:>10} {:>19} {:>10} {:>11.3f} {:>11.3f} {:>11.3f} | {:>9.3f} {:>9.3f}",
                  row.size, subject.algorithm(), row.iterations, row.ours.min_us, row.ours.p50_us,
                  row.ours.max_us, *row.gbytes_per_s, bus)));
  auto json = to_json(row);
  json.update(subject.facts());
  json["bus_gbytes_per_s"] = bus;
  return output.json(context(options, job, 0), json);
}

}  // namespace

Status run_collective(const Options& options, Job& job, const Output& output) {
  DUNLIN_ASSIGN(const auto subject, Subject::create(job, options));
  DUNLIN_TRY(print_collective_heading(options, job, output, *subject));
  std::size_t last = Subject::kNoSize;
  for (const std::size_t size : options.sizes) {
    subject->resize(size);
    if (subject->size() == last) continue;  // the sizes were rounded up to the same one
    last = subject->size();
    DUNLIN_ASSIGN(const auto names, subject->algorithms(options.collective.algorithm));
    for (const std::string_view name : names) {
      subject->choose(name);
      DUNLIN_TRY(measure_one(options, job, *subject, output));
    }
  }
  return subject->communicator().barrier();
}

}  // namespace dunlin::perf
