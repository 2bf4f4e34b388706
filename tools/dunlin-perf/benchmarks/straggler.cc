// straggler-ring: the straggler-aware ring beside the plain one, both in turns. One step is late,
// that of rank 1 with the first chunk, as in the paper on this ring (Zhang et al., 2024, section
// 3), or one that moves from rank to rank and from chunk to chunk. A step waits for a given time
// instead of computing, so that ranks may outnumber cores.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "collectives/straggler/straggler_ring.h"
#include "tools/dunlin-perf/benchmarks/benchmarks.h"
#include "tools/dunlin-perf/benchmarks/call_means.h"

namespace dunlin::perf {
namespace {

using collective::LatenessMode;
using Ring = collective::StragglerRing<double>;

// The step of a reduce that is late.
struct LateStep {
  std::uint32_t member;
  std::uint32_t chunk;
};

// Where it is after so many moves: it goes around the ring, and then on to the next position on the
// path of a chunk. A chunk starts at the member with its number, which has no step to do.
LateStep late_after(std::uint64_t moves, int size) {
  const auto ranks = static_cast<std::uint64_t>(size);
  const std::uint64_t member = (moves + 1) % ranks;
  const std::uint64_t position = 1 + moves / ranks % (ranks - 1);
  return {static_cast<std::uint32_t>(member),
          static_cast<std::uint32_t>((member + ranks - position) % ranks)};
}

// The time of a reduce on the slowest rank, from a barrier on, in nanoseconds.
struct Figures {
  std::vector<double> scattered;
  std::vector<double> took;
};

class StragglerBench {
 public:
  static Result<std::unique_ptr<StragglerBench>> create(Job& job, const Options& options,
                                                        collective::Communicator& communicator,
                                                        std::size_t chunk_bytes) {
    std::unique_ptr<StragglerBench> bench(new StragglerBench(job, options.ring, communicator));
    const LatenessMode modes[] = {LatenessMode::kNever, LatenessMode::kAdaptive};
    for (std::size_t i = 0; i < bench->rings_.size(); ++i) {
      DUNLIN_ASSIGN(bench->rings_[i], bench->make_ring(modes[i], chunk_bytes));
    }
    for (auto& ring : bench->rings_) DUNLIN_TRY(ring->connect());
    return bench;
  }

  // `extra`: the additional time of the late step.
  Result<std::array<Figures, 2>> measure(Duration extra, std::uint64_t warmup,
                                         std::uint64_t iterations) {
    extra_ = extra;
    std::array<Figures, 2> figures;
    for (std::uint64_t i = 0; i < warmup + iterations; ++i) {
      const std::uint64_t moves = options_.moves_every == 0 ? 0 : i / options_.moves_every;
      late_ = late_after(moves, job_.size());
      for (std::size_t each = 0; each < rings_.size(); ++each) {
        DUNLIN_ASSIGN(const auto times, reduce(*rings_[each]));
        if (i < warmup) continue;
        figures[each].scattered.push_back(times[0]);
        figures[each].took.push_back(times[1]);
      }
    }
    for (auto& of_ring : figures) {
      DUNLIN_TRY(maximize(communicator_, of_ring.scattered));
      DUNLIN_TRY(maximize(communicator_, of_ring.took));
    }
    return figures;
  }

  Status align() { return communicator_.barrier(); }

 private:
  StragglerBench(Job& job, const RingOptions& options, collective::Communicator& communicator)
      : job_(job), options_(options), communicator_(communicator) {}

  Result<std::unique_ptr<Ring>> make_ring(LatenessMode mode, std::size_t chunk_bytes) {
    collective::StragglerOptions options;
    options.name =
        fmt::format("perf {} {}", mode == LatenessMode::kNever ? "plain" : "aware", chunk_bytes);
    options.membership.members = job_.ranks();
    options.count =
        std::max<std::size_t>(1, chunk_bytes / sizeof(double)) * options.membership.members.size();
    options.segment_bytes = std::max<std::size_t>(chunk_bytes, sizeof(double));
    options.lateness.mode = mode;
    options.lateness.alpha = options_.alpha;
    options.step_time = [this](const collective::RingStep& step) {
      const bool is_slow = step.member == late_.member && step.chunk == late_.chunk;
      return is_slow ? options_.step + extra_ : options_.step;
    };
    return Ring::prepare(job_.fabric(), options);
  }

  Result<std::array<double, 2>> reduce(Ring& ring) {
    const double own = job_.rank().value() + 1;
    std::fill(ring.data().begin(), ring.data().end(), own);
    DUNLIN_TRY(align());
    DUNLIN_ASSIGN(const auto report, ring.all_reduce(job_.config().deadline));
    const double sum = job_.size() * (job_.size() + 1) / 2.0;
    for (const double value : ring.data()) {
      if (value != sum)
        return Status(Code::kCorrupted, fmt::format("wrong data: {} is not {}", value, sum));
    }
    return std::array<double, 2>{static_cast<double>(report.scattered.count()),
                                 static_cast<double>(report.took.count())};
  }

  Job& job_;
  const RingOptions& options_;
  collective::Communicator& communicator_;
  Duration extra_{};
  LateStep late_{};
  std::array<std::unique_ptr<Ring>, 2> rings_;  // plain, aware
};

double gain_of(const std::vector<double>& plain, const std::vector<double>& aware) {
  return 100 * (1 - median(aware) / median(plain));
}

Status print_one(const Options& options, Job& job, const Output& output, std::size_t chunk_bytes,
                 Duration extra, const std::array<Figures, 2>& figures) {
  if (!job.is_root()) return Status::ok();
  const auto& [plain, aware] = figures;
  const double scatter_gain = gain_of(plain.scattered, aware.scattered);
  const double gain = gain_of(plain.took, aware.took);
  DUNLIN_TRY(output.text(
      fmt::format("{:>10.3f} {:>10} | {:>10.3f} {:>10.3f} {:>7.1f} | {:>10.3f} {:>10.3f} {:>7.1f}",
                  to_seconds(extra) * 1e3, plain.took.size(), median(plain.scattered) / 1e6,
                  median(aware.scattered) / 1e6, scatter_gain, median(plain.took) / 1e6,
                  median(aware.took) / 1e6, gain)));
  nlohmann::ordered_json json{{"size", chunk_bytes},
                              {"iterations", plain.took.size()},
                              {"step_us", to_seconds(options.ring.step) * 1e6},
                              {"extra_us", to_seconds(extra) * 1e6},
                              {"alpha", options.ring.alpha},
                              {"moves_every", options.ring.moves_every},
                              {"plain_scatter_us", median(plain.scattered) / 1e3},
                              {"aware_scatter_us", median(aware.scattered) / 1e3},
                              {"scatter_gain_percent", scatter_gain},
                              {"plain_us", median(plain.took) / 1e3},
                              {"aware_us", median(aware.took) / 1e3},
                              {"gain_percent", gain},
                              {"checked", true}};
  return output.json(context(options, job, 0), json);
}

Status print_ring_heading(const Options& options, Job& job, const Output& output,
                          std::size_t chunk_bytes) {
  if (!job.is_root()) return Status::ok();
  return output.text(fmt::format(
      "over {}: rings of {} ranks, chunks of {} bytes, steps of {:.3f} ms, one of them late; "
      "medians\n"
      "{:>10} {:>10} | {:^29} | {:^29}\n"
      "{:>10} {:>10} | {:>10} {:>10} {:>7} | {:>10} {:>10} {:>7}\n"
      "{:>10} {:>10} | {:>10} {:>10} {:>7} | {:>10} {:>10} {:>7}",
      job.fabric().transport_of(Rank(1)), job.size(), chunk_bytes,
      to_seconds(options.ring.step) * 1e3, "", "", "reduce-scatter", "all-reduce", "late by",
      "iterations", "plain", "aware", "gain", "plain", "aware", "gain", "ms", "", "ms", "ms", "%",
      "ms", "ms", "%"));
}

}  // namespace

Status run_straggler_ring(const Options& options, Job& job, const Output& output) {
  constexpr std::uint64_t kIterations = 40;
  constexpr std::uint64_t kWarmup = 20;  // more reduces than the usual times are learned from
  const std::uint64_t iterations = options.iterations == 0 ? kIterations : options.iterations;
  const std::uint64_t warmup = options.warmup == 0 ? kWarmup : options.warmup;
  DUNLIN_ASSIGN(const auto communicator, collective::Communicator::create(job.fabric(), {}));
  for (const std::size_t size : options.sizes) {
    DUNLIN_ASSIGN(const auto bench, StragglerBench::create(job, options, *communicator, size));
    DUNLIN_TRY(print_ring_heading(options, job, output, size));
    for (const Duration extra : options.ring.extras) {
      DUNLIN_ASSIGN(const auto figures, bench->measure(extra, warmup, iterations));
      DUNLIN_TRY(print_one(options, job, output, size, extra, figures));
    }
    DUNLIN_TRY(bench->align());
  }
  return Status::ok();
}

}  // namespace dunlin::perf
