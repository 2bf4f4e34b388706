// mutex: all ranks lock and unlock one mutex repeatedly; timed at rank 0, from lock() to the end of
// unlock(). With several ranks that is a turn of all of them. The limit comes from the bare
// ping-pong of ranks 0 and 1: a turn hands the mutex over once per rank, each time in half a round
// trip. As many turns again are checked (20,000 of each rank without --iterations), by counting
// them in memory that the mutex protects.
#include <fmt/format.h>

#include "collectives/barrier/barrier.h"
#include "collectives/rma/mutex.h"
#include "tools/dunlin-perf/benchmarks/benchmarks.h"
#include "tools/dunlin-perf/benchmarks/mutex_turns.h"
#include "tools/dunlin-perf/benchmarks/pair.h"
#include "tools/dunlin-perf/benchmarks/ping_pong.h"

namespace dunlin::perf {
namespace {

constexpr Rank kOwner(0);
constexpr std::uint64_t kTurns = 20'000;  // checked turns of each rank

class MutexBench {
 public:
  MutexBench(Job& job, collective::DistributedMutex& mutex, collective::Barrier& barrier)
      : job_(job), mutex_(mutex), barrier_(barrier) {}

  Status pass() {
    DUNLIN_TRY(lock());
    return unlock();
  }

  // Collective.
  Result<MutexTurns::Figures> check(std::uint64_t each) {
    DUNLIN_ASSIGN(const auto turns, MutexTurns::create(job_));
    DUNLIN_TRY(align());
    for (std::uint64_t i = 0; i < each; ++i) {
      DUNLIN_TRY(lock());
      DUNLIN_TRY(turns->take());
      DUNLIN_TRY(unlock());
    }
    DUNLIN_TRY(align());
    auto figures = turns->finish(each);
    DUNLIN_TRY(align());  // no rank frees its memory before all are done
    return figures;
  }

  // Waits until no rank uses the mutex any more: the others need an owner rank that manages it.
  Status align() {
    DUNLIN_TRY(barrier_.start());
    return await([&] {
      DUNLIN_TRY(mutex_.progress());
      return barrier_.test();
    });
  }

 private:
  Status lock() {
    if (!job_.spins()) return mutex_.lock(job_.config().deadline).status();
    DUNLIN_TRY(await([&] { return mutex_.start(); }));
    return await([&] { return mutex_.test().status(); });
  }
  Status unlock() {
    if (!job_.spins()) return mutex_.unlock(job_.config().deadline);
    DUNLIN_TRY(mutex_.start_unlock());
    return await([&] { return mutex_.test_unlock(); });
  }
  template <typename Ready>
  Status await(Ready&& ready) {
    Status status = ready();
    if (!status.is_busy()) return status;
    DUNLIN_TRY(job_.await(kOwner, "the mutex", [&] { return !(status = ready()).is_busy(); }));
    return status;
  }

  Job& job_;
  collective::DistributedMutex& mutex_;
  collective::Barrier& barrier_;
};

Result<Row> measure(Job& job, MutexBench& bench, Pair* pair, const Plan& plan) {
  Timer ours(plan.is_each_timed);
  Timer limit(plan.is_each_timed);
  BarePingPong* const bare = pair != nullptr ? pair->bare() : nullptr;
  const auto one = [&] { return bench.pass(); };
  const auto trip = [&] { return round_trip(*bare, pair->leads()); };
  const Clock& clock = job.fabric().clock();
  const TimePoint warming = clock.now();
  if (bare != nullptr) DUNLIN_TRY(limit.warm_up(plan.warmup, trip));
  DUNLIN_TRY(bench.align());
  DUNLIN_TRY(ours.warm_up(plan.warmup, one));
  DUNLIN_TRY(bench.align());
  Pacer pacer(plan, (clock.now() - warming) / static_cast<std::int64_t>(plan.warmup));
  Row row;
  Rate rate;
  for (;;) {
    DUNLIN_ASSIGN(const std::uint64_t count, job.next_chunk(plan, pacer));
    if (count == 0) break;
    if (bare != nullptr) DUNLIN_TRY(limit.run(count, trip));
    DUNLIN_TRY(bench.align());
    const TimePoint began = clock.now();
    DUNLIN_TRY(ours.run(count, one));
    DUNLIN_TRY(bench.align());
    rate.add(count * static_cast<std::uint64_t>(job.size()), clock.now() - began);
    row.iterations += count;
  }
  row.take(ours.histogram(), 1, plan.is_each_timed);
  row.messages_per_s = rate.per_second();
  if (bare != nullptr) {
    row.limit = limit.histogram().summary(0.5 * job.size());
    row.ratio = paired_ratio(ours, limit) / (0.5 * job.size());
  }
  return row;
}

nlohmann::ordered_json facts_of(const MutexTurns::Figures& figures) {
  return {{"turns", figures.turns},
          {"turn_gap_p50", figures.median},
          {"turn_gap_p99", figures.p99},
          {"turn_gap_max", figures.most}};
}

}  // namespace

Status run_mutex(const Options& options, Job& job, const Output& output) {
  collective::MutexOptions mutex_options;
  mutex_options.name = "perf";
  mutex_options.membership.members = job.ranks();
  mutex_options.owner_rank = kOwner;
  DUNLIN_ASSIGN(const auto mutex,
                collective::DistributedMutex::prepare(job.fabric(), mutex_options));
  DUNLIN_ASSIGN(const auto barrier,
                collective::Barrier::prepare(job.fabric(), "perf mutex", job.ranks()));
  DUNLIN_TRY(mutex->connect());
  DUNLIN_TRY(barrier->connect());
  std::unique_ptr<Pair> pair;
  if (job.rank() < Rank(2)) {
    DUNLIN_ASSIGN(pair, Pair::create(job, 0));
  }
  DUNLIN_TRY(print_heading(
      job, output,
      fmt::format("mutex of {} ranks, {}: lock and unlock, timed at rank 0; rates: of all ranks",
                  job.size(), mutex->is_managed() ? "managed by rank 0" : "words at rank 0"),
      {"ping-pong", "a bare cache line to each rank"}));
  const Plan plan = plan_for(0, options);
  MutexBench bench(job, *mutex, *barrier);
  DUNLIN_ASSIGN(const Row row, measure(job, bench, pair.get(), plan));
  MutexTurns::Figures turns;
  if (options.checks) {
    DUNLIN_ASSIGN(turns, bench.check(options.iterations == 0 ? kTurns : options.iterations));
  }
  if (job.is_root() && !options.checks) DUNLIN_TRY(print_row(options, job, output, 0, row));
  if (job.is_root() && options.checks) {
    DUNLIN_TRY(print_row(options, job, output, 0, row, facts_of(turns)));
    DUNLIN_TRY(output.text(
        fmt::format("{} turns of {} ranks, none lost; from one turn of a rank to its next: median "
                    "{}, 99 % {}, most {}",
                    turns.turns, job.size(), turns.median, turns.p99, turns.most)));
  }
  return bench.align();
}

}  // namespace dunlin::perf
