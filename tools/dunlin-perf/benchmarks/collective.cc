// all-reduce, reduce-scatter, all-gather, broadcast, all-to-all, reduce: blocking calls, one after
// the other. A barrier aligns the ranks before each chunk. The sample of a chunk is its mean time
// per call, on the rank where that is largest. An all-reduce on one GPU is measured in turns with
// what the GPU can do (fused_limit.h).
#include "tools/dunlin-perf/benchmarks/collective.h"

#include <fmt/format.h>

#include "tools/dunlin-perf/benchmarks/benchmarks.h"
#include "tools/dunlin-perf/benchmarks/call_means.h"
#include "tools/dunlin-perf/benchmarks/fused_limit.h"

namespace dunlin::perf {
namespace {

// Samples of FusedLimit, in nanoseconds, beside those of the collective.
struct FusedSamples {
  std::vector<double> whole;
  std::vector<double> in_turns;
};

Status print_collective_heading(const Options& options, Job& job, const Output& output,
                                const Subject& subject, bool has_limit) {
  if (!job.is_root()) return Status::ok();
  if (has_limit) {
    DUNLIN_TRY(output.text(
        "kernel: one kernel at rank 0 that reads all inputs and writes all outputs; in turns: each "
        "rank's kernel does its share of it, all at the same time"));
  }
  return output.text(fmt::format(
      "over {}: {} of {} ranks, {}, {}, {} memory: one blocking call, the mean of the "
      "slowest rank per "
      "chunk\n"
      "{:>10} {:>19} {:>10} {:>11} {:>11} {:>11} | {:>9} {:>9}{}\n"
      "{:>10} {:>19} {:>10} {:>11} {:>11} {:>11} | {:>9} {:>9}{}",
      job.fabric().transport_of(Rank(1)), to_string(options.bench), job.size(),
      options.collective.type, subject.is_in_place() ? "in place" : "out of place",
      memory_name(options), "size", "algorithm", "iterations", "min", "p50", "max", "alg", "bus",
      has_limit ? fmt::format(" | {:>11} {:>11} {:>6}", "kernel", "in turns", "ratio") : "",
      "bytes", "", "", "us", "us", "us", "GB/s", "GB/s",
      has_limit ? fmt::format(" | {:>11} {:>11} {:>6}", "us", "us", "") : ""));
}

// Times the limit for one chunk.
Status measure_limit(Job& job, Subject& subject, FusedLimit& limit, std::uint64_t count,
                     FusedSamples& samples) {
  const Clock& clock = job.fabric().clock();
  const auto time = [&](auto&& once, std::vector<double>& means) {
    DUNLIN_TRY(subject.host_communicator().barrier());
    const TimePoint began = clock.now();
    for (std::uint64_t i = 0; i < count; ++i) DUNLIN_TRY(once());
    means.push_back(static_cast<double>((clock.now() - began).count()) /
                    static_cast<double>(count));
    return Status::ok();
  };
  const bool computes = job.is_root();
  DUNLIN_TRY(
      time([&] { return computes ? limit.whole(subject.call()) : Status::ok(); }, samples.whole));
  return time([&] { return limit.share(subject.call()); }, samples.in_turns);
}

double median_us(const std::vector<double>& nanoseconds) {
  return median(nanoseconds) / 1e3;
}

Status measure_one(const Options& options, Job& job, Subject& subject, FusedLimit* limit,
                   const Output& output) {
  if (options.checks) DUNLIN_TRY(subject.check());
  DUNLIN_TRY(subject.clear());
  Row row;
  FusedSamples samples;
  DUNLIN_ASSIGN(const std::vector<double> means,
                call_means(
                    job, subject.host_communicator(), plan_for(subject.size(), options),
                    row.iterations, [&] { return subject.once(); },
                    [&](std::uint64_t count) {
                      return limit == nullptr ? Status::ok()
                                              : measure_limit(job, subject, *limit, count, samples);
                    }));
  if (limit != nullptr) DUNLIN_TRY(maximize(subject.host_communicator(), samples.in_turns));
  if (!job.is_root()) return Status::ok();
  row.size = subject.size();
  take_means(row, means);
  row.gbytes_per_s = static_cast<double>(row.size) / (row.ours.p50_us * 1e3);
  const double bus = *row.gbytes_per_s * subject.bus_factor();
  std::string beside;
  if (limit != nullptr) {
    std::vector<double> ratios;
    for (std::size_t chunk = 0; chunk < means.size(); ++chunk)
      ratios.push_back(means[chunk] / samples.whole[chunk]);
    Histogram whole;
    for (const double sample : samples.whole) whole.add(sample);
    row.limit = whole.summary();
    row.ratio = median(ratios);
    beside = fmt::format(" | {:>11.3f} {:>11.3f} {:>6.2f}", row.limit->p50_us,
                         median_us(samples.in_turns), *row.ratio);
  }
  DUNLIN_TRY(output.text(
      fmt::format("{:>10} {:>19} {:>10} {:>11.3f} {:>11.3f} {:>11.3f} | {:>9.3f} {:>9.3f}{}",
                  row.size, subject.algorithm(), row.iterations, row.ours.min_us, row.ours.p50_us,
                  row.ours.max_us, *row.gbytes_per_s, bus, beside)));
  auto json = to_json(row);
  json.update(subject.facts());
  if (limit != nullptr) json["in_turns_us"] = median_us(samples.in_turns);
  json["bus_gbytes_per_s"] = bus;
  return output.json(context(options, job, 0), json);
}

}  // namespace

Status run_collective(const Options& options, Job& job, const Output& output) {
  DUNLIN_ASSIGN(const auto subject, Subject::create(job, options));
  DUNLIN_ASSIGN(const auto limit, FusedLimit::create(job, options, *subject));
  DUNLIN_TRY(print_collective_heading(options, job, output, *subject, limit != nullptr));
  std::size_t last = Subject::kNoSize;
  for (const std::size_t size : options.sizes) {
    subject->resize(size);
    if (subject->size() == last) continue;  // the sizes were rounded up to the same one
    last = subject->size();
    DUNLIN_ASSIGN(const auto names, subject->algorithms(options.collective.algorithm));
    for (const std::string_view name : names) {
      subject->choose(name);
      DUNLIN_TRY(measure_one(options, job, *subject, limit.get(), output));
    }
  }
  return subject->communicator().barrier();
}

}  // namespace dunlin::perf
