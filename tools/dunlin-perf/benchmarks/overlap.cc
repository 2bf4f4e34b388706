// overlap: a non-blocking all-reduce while the ranks compute. The computation is a fixed number of
// steps that take about as long as the all-reduce alone. Whatever takes processor time from it
// makes it take longer. Chunks of all three (all-reduce, computation, both) come in turns.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/units.h"
#include "tools/dunlin-perf/benchmarks/benchmarks.h"
#include "tools/dunlin-perf/benchmarks/call_means.h"
#include "tools/dunlin-perf/benchmarks/collective.h"

namespace dunlin::perf {
namespace {

// Work in registers alone. It competes for the core, not for memory.
class Computation {
 public:
  void run(std::uint64_t steps) {
    for (std::uint64_t i = 0; i < steps; ++i) {
      for (int j = 0; j < kPerStep; ++j) state_ = state_ * 6364136223846793005u + 1;
      asm volatile("" : "+r"(state_));  // the compiler must not drop the computation
    }
  }
  // Measures the steps per nanosecond without disturbance.
  double rate(const Clock& clock) {
    constexpr std::uint64_t kSteps = 20'000;
    double best = 0;
    for (int trial = 0; trial < 10; ++trial) {
      const TimePoint began = clock.now();
      run(kSteps);
      best = std::max(best, kSteps / static_cast<double>((clock.now() - began).count()));
    }
    return best;
  }

 private:
  static constexpr int kPerStep = 32;
  std::uint64_t state_ = 1;
};

class Overlap {
 public:
  Overlap(Job& job, Subject& subject, Duration progress_every)
      : job_(job), subject_(subject), rate_(computation_.rate(job.fabric().clock())) {
    const auto ns = static_cast<double>(progress_every.count());
    between_ = ns == 0 ? ~std::uint64_t{0}
                       : std::max<std::uint64_t>(1, static_cast<std::uint64_t>(ns * rate_));
  }

  // Sets the length of the computation to that of most calls. Calls that other work on this host
  // made slower do not count.
  Status calibrate(std::uint64_t calls) {
    constexpr std::uint64_t kTrials = 9;
    means_.clear();
    for (std::uint64_t trial = 0; trial < kTrials; ++trial) {
      DUNLIN_TRY(subject_.communicator().barrier());
      DUNLIN_TRY(time((calls + kTrials - 1) / kTrials, [&] { return subject_.once(); }));
    }
    DUNLIN_TRY(maximize(subject_.host_communicator(), means_));
    mean_ = median(means_);
    steps_ = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(mean_ * rate_));
    return Status::ok();
  }
  double mean() const { return mean_; }

  // Returns the means of a chunk of all three on the slowest rank, in nanoseconds.
  Result<std::array<double, 3>> chunk(std::uint64_t calls) {
    means_.clear();
    DUNLIN_TRY(subject_.communicator().barrier());
    DUNLIN_TRY(time(calls, [&] { return subject_.once(); }));
    DUNLIN_TRY(subject_.communicator().barrier());
    DUNLIN_TRY(time(calls, [&] {
      computation_.run(steps_);
      return Status::ok();
    }));
    DUNLIN_TRY(subject_.communicator().barrier());
    DUNLIN_TRY(time(calls, [&] { return both(); }));
    DUNLIN_TRY(maximize(subject_.host_communicator(), means_));
    return std::array<double, 3>{means_[0], means_[1], means_[2]};
  }

 private:
  template <typename Operation>
  Status time(std::uint64_t calls, Operation&& operation) {
    const Clock& clock = job_.fabric().clock();
    const TimePoint began = clock.now();
    for (std::uint64_t i = 0; i < calls; ++i) DUNLIN_TRY(operation());
    means_.push_back(static_cast<double>((clock.now() - began).count()) /
                     static_cast<double>(calls));
    return Status::ok();
  }
  Status both() {
    collective::Communicator& communicator = subject_.communicator();
    DUNLIN_ASSIGN(const collective::CollectiveRequest request, communicator.start(subject_.call()));
    Status status = Status::busy();
    for (std::uint64_t left = steps_; left > 0;) {
      const std::uint64_t now = status.is_busy() ? std::min(left, between_) : left;
      computation_.run(now);
      left -= now;
      if (left > 0 && status.is_busy()) status = communicator.test(request);
    }
    return status.is_busy() ? communicator.wait(request, job_.config().deadline) : status;
  }

  Job& job_;
  Subject& subject_;
  Computation computation_;
  double rate_;
  std::uint64_t between_;
  std::uint64_t steps_ = 1;
  double mean_ = 0;
  std::vector<double> means_;
};

struct Figures {
  std::uint64_t iterations = 0;
  std::array<std::vector<double>, 3> times;  // all-reduce, computation, both
  std::vector<double> shares;
};

Result<Figures> measure(Job& job, Overlap& overlap, const Plan& plan) {
  DUNLIN_TRY(overlap.calibrate(plan.warmup));  // the first calls are cold
  DUNLIN_TRY(overlap.calibrate(plan.warmup));
  Pacer pacer(plan, Duration(std::llround(3 * overlap.mean())));
  Figures figures;
  for (;;) {
    DUNLIN_ASSIGN(const std::uint64_t count, job.next_chunk(plan, pacer));
    if (count == 0) return figures;
    DUNLIN_ASSIGN(const auto means, overlap.chunk(count));
    for (std::size_t i = 0; i < means.size(); ++i) figures.times[i].push_back(means[i]);
    const auto [communicating, computing, both] = means;
    figures.shares.push_back((communicating + computing - both) /
                             std::min(communicating, computing));
    figures.iterations += count;
  }
}

Status measure_one(const Options& options, Job& job, Subject& subject, Overlap& overlap,
                   const Output& output) {
  if (options.checks) DUNLIN_TRY(subject.check());
  DUNLIN_TRY(subject.clear());
  DUNLIN_ASSIGN(const Figures figures, measure(job, overlap, plan_for(subject.size(), options)));
  if (!job.is_root()) return Status::ok();
  Histogram histogram;
  for (const double both : figures.times[2]) histogram.add(both);
  Row row;
  row.size = subject.size();
  row.iterations = figures.iterations;
  row.take(histogram, 1, false);
  const double communicating = median(figures.times[0]) / 1e3;
  const double computing = median(figures.times[1]) / 1e3;
  const double percent = 100 * median(figures.shares);
  DUNLIN_TRY(output.text(fmt::format(
      "{:>10} {:>19} {:>10} {:>13.3f} {:>13.3f} {:>13.3f} | {:>7.1f}", row.size,
      subject.algorithm(), row.iterations, communicating, computing, row.ours.p50_us, percent)));
  auto json = to_json(row);
  json.update(subject.facts());
  json["communicating_us"] = communicating;
  json["computing_us"] = computing;
  json["both_us"] = row.ours.p50_us;
  json["overlap_percent"] = percent;
  json["progress_every_us"] = to_seconds(options.collective.progress_every) * 1e6;
  return output.json(context(options, job, 0), json);
}

Status print_overlap_heading(const Options& options, Job& job, const Output& output) {
  if (!job.is_root()) return Status::ok();
  const Duration every = options.collective.progress_every;
  return output.text(fmt::format(
      "over {}: all-reduce of {} ranks while they compute, {}; overlap: what both together save, "
      "of the shorter one\n"
      "{:>10} {:>19} {:>10} {:>13} {:>13} {:>13} | {:>7}\n"
      "{:>10} {:>19} {:>10} {:>13} {:>13} {:>13} | {:>7}",
      job.fabric().transport_of(Rank(1)), job.size(),
      every == Duration::zero() ? "without progress() in between"
                                : fmt::format("progress every {}", exact_time(every)),
      "size", "algorithm", "iterations", "all-reduce", "computation", "both", "overlap", "bytes",
      "", "", "us", "us", "us", "%"));
}

}  // namespace

Status run_overlap(const Options& options, Job& job, const Output& output) {
  DUNLIN_ASSIGN(const auto subject, Subject::create(job, options));
  subject->choose(options.collective.algorithm);
  Overlap overlap(job, *subject, options.collective.progress_every);
  DUNLIN_TRY(print_overlap_heading(options, job, output));
  for (const std::size_t size : options.sizes) {
    subject->resize(size);
    DUNLIN_TRY(measure_one(options, job, *subject, overlap, output));
  }
  return subject->communicator().barrier();
}

}  // namespace dunlin::perf
