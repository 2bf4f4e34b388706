#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "tools/dunlin-perf/benchmarks/consistency.h"

namespace dunlin::perf {
namespace {

using collective::ReduceReport;
using collective::SyncMode;
using Reduce = collective::StochasticReduce<float>;

// Small whole numbers, which a float holds exactly. They differ between neighboring ranks and
// between consecutive steps.
float value_of(Rank rank, std::uint64_t step) {
  constexpr std::uint64_t kRanks = 64;
  constexpr std::uint64_t kSteps = 251;
  return static_cast<float>(1 + step % kSteps * kRanks + rank.index() % kRanks);
}

// The largest error of the weighted average of `inputs` values up to `value`.
float rounding(float value, std::size_t inputs) {
  return value * static_cast<float>(inputs + 2) * std::numeric_limits<float>::epsilon();
}

bool is_within(std::span<const float> model, float low, float high) {
  std::size_t outside = 0;  // without a branch, so that the compiler vectorizes the loop
  for (const float value : model) outside += !(value >= low && value <= high);
  return outside == 0;
}

class Worker {
 public:
  Worker(const ConsistencyOptions& options, Job& job, const collective::Neighborhood& around,
         SyncMode mode, Reduce& reduce)
      : options_(options), job_(job), around_(around), mode_(mode), reduce_(reduce) {
    if (options.straggler && options.straggler->rank == job.rank().value()) {
      slowness_ = options.straggler->factor;
    }
  }

  Result<Tally> run() {
    Tally tally;
    tally.by_inputs.resize(around_.in.size() + 1);
    const TimePoint began = now();
    for (std::uint64_t step = 1; step <= options_.reduces; ++step) {
      const TimePoint step_began = now();
      std::ranges::fill(reduce_.model(), value_of(job_.rank(), step));
      compute();
      DUNLIN_ASSIGN(const ReduceReport report, reduce_.reduce(job_.config().deadline));
      tally.add(report, around_.in.size());
      if (!is_right(report)) ++tally.wrong;
      lag(now() - step_began - report.waited);
    }
    tally.seconds = to_seconds(now() - began);
    return tally;
  }

 private:
  TimePoint now() const { return job_.fabric().clock().now(); }

  // Computes, which occupies the core.
  void compute() const {
    for (const TimePoint end = now() + options_.compute; now() < end;) cpu_relax();
  }

  // Makes a straggler longer than the time `busy`. It sleeps, because a slow host would not occupy
  // the cores of the others.
  void lag(Duration busy) const {
    if (slowness_ <= 1) return;
    std::this_thread::sleep_for(std::chrono::duration_cast<Duration>(
        (slowness_ - 1) * std::chrono::duration<double>(busy)));
  }

  bool is_right(const ReduceReport& report) const {
    const std::span<const float> model = reduce_.model();
    float expected = model.front();
    if (mode_ == SyncMode::kNotifyAck) expected = average_of(report.step);
    const float tolerance = rounding(expected, around_.in.size());
    return is_within(model, expected - tolerance, expected + tolerance);
  }

  float average_of(std::uint64_t step) const {
    double sum = around_.self_weight * value_of(job_.rank(), step);
    for (std::size_t i = 0; i < around_.in.size(); ++i) {
      sum += around_.in_weights[i] * value_of(around_.in[i], step);
    }
    return static_cast<float>(sum);
  }

  const ConsistencyOptions& options_;
  Job& job_;
  const collective::Neighborhood& around_;
  SyncMode mode_;
  Reduce& reduce_;
  double slowness_ = 1;
};

// Time until the last rank is done, which a straggler multiplies by its factor.
Duration timeout_of(const ConsistencyOptions& options, const Job& job, Duration own) {
  const double factor = options.straggler ? options.straggler->factor : 1;
  return job.config().deadline + std::chrono::duration_cast<Duration>(own * (2 * factor + 10));
}

}  // namespace

Result<Tally> run_reduces(const ConsistencyOptions& options, std::uint32_t depth, Job& job,
                          const collective::Graph& graph, SyncMode mode) {
  const std::vector<Rank> members = job.ranks();
  const std::string name = fmt::format("perf-consistency-{}", to_string(mode));
  DUNLIN_ASSIGN(
      const auto around,
      collective::neighborhood_of(graph, collective::Weighting::kUniform, members, job.rank()));
  DUNLIN_ASSIGN(const auto barrier, collective::Barrier::prepare(job.fabric(), name, members));
  DUNLIN_TRY(barrier->connect());
  DUNLIN_ASSIGN(const auto reduce,
                Reduce::prepare(job.fabric(), {name, job.fabric().bootstrap().membership(), around,
                                               options.count, mode, depth}));
  DUNLIN_TRY(reduce->connect());
  DUNLIN_TRY(barrier->wait(job.config().deadline));
  DUNLIN_ASSIGN(Tally tally, Worker(options, job, around, mode, *reduce).run());
  // Other ranks may still be putting into the slots of this one.
  const auto own =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(tally.seconds));
  DUNLIN_TRY(barrier->wait(timeout_of(options, job, own)));
  return tally;
}

}  // namespace dunlin::perf
