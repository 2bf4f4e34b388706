// barrier: all ranks, timed at rank 0. The limit is the bare ping-pong of ranks 0 and 1: a barrier
// is ceil(log2 n) rounds of one notification each, so that many times half a round trip.
#include <fmt/format.h>

#include <bit>
#include <numeric>

#include "collectives/barrier.h"
#include "tools/dunlin-perf/benchmarks.h"
#include "tools/dunlin-perf/pair.h"
#include "tools/dunlin-perf/ping_pong.h"

namespace dunlin::perf {
namespace {

Status pass(Job& job, collective::Barrier& barrier) {
  if (!job.spins()) return barrier.wait(job.config().deadline);
  DUNLIN_TRY(barrier.start());
  Status status = Status::busy();
  const Rank neighbour((job.rank().value() + 1) % job.size());
  DUNLIN_TRY(
      job.await(neighbour, "a barrier", [&] { return !(status = barrier.test()).is_busy(); }));
  return status;
}

Result<Row> measure(Job& job, collective::Barrier& barrier, Pair* pair, const Plan& plan) {
  Timer ours;
  Timer limit;
  BarePingPong* const bare = pair != nullptr ? pair->bare() : nullptr;
  const auto one = [&] { return pass(job, barrier); };
  const auto trip = [&] { return round_trip(*bare, pair->leads()); };
  if (bare != nullptr) DUNLIN_TRY(limit.warm_up(plan.warmup, trip));
  DUNLIN_TRY(ours.warm_up(plan.warmup, one));
  for (std::uint64_t chunk = 0; chunk < plan.chunks; ++chunk) {
    if (bare != nullptr) DUNLIN_TRY(limit.run(plan.per_chunk, trip));
    DUNLIN_TRY(ours.run(plan.per_chunk, one));
  }
  Row row;
  row.iterations = plan.iterations();
  row.ours = ours.summary();
  if (bare != nullptr) {
    const int rounds = std::bit_width(static_cast<unsigned>(job.size() - 1));
    row.limit = limit.summary(0.5 * rounds);
    row.ratio = paired_ratio(ours, limit) / (0.5 * rounds);
  }
  return row;
}

}  // namespace

Status run_barrier(const Options& options, Job& job, const Output& output) {
  DUNLIN_ASSIGN(const auto barrier,
                collective::Barrier::prepare(job.fabric(), "perf", job.ranks()));
  DUNLIN_TRY(barrier->connect());
  std::unique_ptr<Pair> pair;
  if (job.rank() < Rank(2)) {
    DUNLIN_ASSIGN(pair, Pair::create(job, 0));
  }
  if (job.is_root()) {
    DUNLIN_TRY(output.text(
        fmt::format("barrier of {} ranks, timed at rank 0; limit: rounds x half a round trip of a "
                    "bare cache line\n{}",
                    job.size(), format_heading("ping-pong"))));
  }
  const Plan plan = plan_for(0, options.iterations, options.warmup);
  DUNLIN_ASSIGN(const Row row, measure(job, *barrier, pair.get(), plan));
  if (job.is_root()) {
    DUNLIN_TRY(output.text(format_row(row)));
    DUNLIN_TRY(output.json(context(options, job, 0), to_json(row)));
  }
  return pass(job, *barrier);
}

}  // namespace dunlin::perf
