// barrier: of all ranks, timed at rank 0. A barrier has ceil(log2 n) rounds of one notification
// each. The limit is therefore that many halves of a bare round trip, measured between ranks 0
// and 1.
#include <fmt/format.h>

#include <bit>
#include <numeric>

#include "collectives/barrier/barrier.h"
#include "tools/dunlin-perf/benchmarks/benchmarks.h"
#include "tools/dunlin-perf/benchmarks/pair.h"
#include "tools/dunlin-perf/benchmarks/ping_pong.h"

namespace dunlin::perf {
namespace {

Status pass(Job& job, collective::Barrier& barrier) {
  if (!job.spins()) return barrier.wait(job.config().deadline);
  DUNLIN_TRY(barrier.start());
  Status status = Status::busy();
  const Rank neighbor((job.rank().value() + 1) % job.size());
  DUNLIN_TRY(
      job.await(neighbor, "a barrier", [&] { return !(status = barrier.test()).is_busy(); }));
  return status;
}

Result<Row> measure(Job& job, collective::Barrier& barrier, Pair* pair, const Plan& plan) {
  Timer ours(plan.is_each_timed);
  Timer limit(plan.is_each_timed);
  BarePingPong* const bare = pair != nullptr ? pair->bare() : nullptr;
  const auto one = [&] { return pass(job, barrier); };
  const auto trip = [&] { return round_trip(*bare, pair->leads()); };
  const Clock& clock = job.fabric().clock();
  const TimePoint warming = clock.now();
  if (bare != nullptr) DUNLIN_TRY(limit.warm_up(plan.warmup, trip));
  DUNLIN_TRY(ours.warm_up(plan.warmup, one));
  Pacer pacer(plan, (clock.now() - warming) / static_cast<std::int64_t>(plan.warmup));
  Row row;
  for (;;) {
    DUNLIN_ASSIGN(const std::uint64_t count, job.next_chunk(plan, pacer));
    if (count == 0) break;
    if (bare != nullptr) DUNLIN_TRY(limit.run(count, trip));
    DUNLIN_TRY(ours.run(count, one));
    row.iterations += count;
  }
  row.take(ours.histogram(), 1, plan.is_each_timed);
  if (bare != nullptr) {
    const int rounds = std::bit_width(static_cast<unsigned>(job.size() - 1));
    row.limit = limit.histogram().summary(0.5 * rounds);
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
  DUNLIN_TRY(print_heading(job, output,
                           fmt::format("barrier of {} ranks, timed at rank 0", job.size()),
                           {"ping-pong", "rounds x half a round trip of a bare cache line"}));
  const Plan plan = plan_for(0, options);
  DUNLIN_ASSIGN(const Row row, measure(job, *barrier, pair.get(), plan));
  if (job.is_root()) {
    DUNLIN_TRY(print_row(options, job, output, 0, row));
  }
  return pass(job, *barrier);
}

}  // namespace dunlin::perf
