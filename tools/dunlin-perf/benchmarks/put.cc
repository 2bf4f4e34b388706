// put: one rank puts without the CPU of its peer, which sleeps unless the transport needs its
// progress. Timed at the putting side, beside a copy of the same size between memory of
// the same kind:
//   - put + flush(remote), one at a time;
//   - a stream that keeps `depth` puts outstanding, flushed at the end of each stretch: the
//     bandwidth that ib_write_bw measures. With --bidirectional both ranks stream, until both are
//     done.
#include <fmt/format.h>

#include <algorithm>

#include "tools/dunlin-perf/benchmarks/benchmarks.h"
#include "tools/dunlin-perf/benchmarks/check.h"
#include "tools/dunlin-perf/benchmarks/copy_target.h"
#include "tools/dunlin-perf/benchmarks/ping_pong.h"
#include "tools/dunlin-perf/benchmarks/window.h"

namespace dunlin::perf {
namespace {

// A stretch of the stream is long enough that the flush at its end hardly counts. It is no longer,
// because other work on this core should disturb some stretches and not all of them.
constexpr Duration kStretch = std::chrono::microseconds(250);
constexpr std::int64_t kFlushesPerStretch = 50;

class PutBench {
 public:
  PutBench(Pair& pair, Window& window, CopyTarget& copy_target, bool is_bidirectional)
      : pair_(pair),
        window_(window),
        copy_target_(copy_target),
        is_bidirectional_(is_bidirectional) {}

  // To be called on both ranks; the row of the leader is filled.
  Result<Row> run(std::size_t size, std::uint32_t depth, const Plan& plan, bool checks) {
    window_.resize(depth);
    shortest_ = 2 * depth;
    DUNLIN_ASSIGN(from_, pair_.source().slice(0, size));
    DUNLIN_ASSIGN(to_, pair_.remote().slice(0, size));
    if (checks) DUNLIN_TRY(check_puts(pair_, size, is_bidirectional_));
    DUNLIN_ASSIGN(Row row, measure(plan));
    DUNLIN_TRY(pair_.sync());
    return row;
  }

 private:
  TimePoint now() const { return pair_.job().fabric().clock().now(); }

  Status put_and_flush() {
    DUNLIN_TRY(
        pair_.job().post(pair_.peer(), [&] { return pair_.lane().put(from_, to_, nullptr); }));
    return pair_.flush(transport::Visibility::kRemote);
  }
  Status put_many(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      DUNLIN_TRY(window_.post(pair_, [&](transport::Completion* completion) {
        return pair_.lane().put(from_, to_, completion);
      }));
    }
    DUNLIN_TRY(pair_.flush(transport::Visibility::kRemote));
    return window_.drain(pair_);
  }
  Status put_both_ways(std::uint64_t count) {
    DUNLIN_TRY(put_many(count));
    return pair_.leads() ? pair_.await_notification() : pair_.notify();
  }
  Status stream(std::uint64_t count, Rate& rate) {
    if (!pair_.leads() && !is_bidirectional_) return Status::ok();
    while (count != 0) {
      std::uint64_t stretch = count < 2 * stretch_ ? count : stretch_;
      // Both sides begin at the same time.
      if (is_bidirectional_) {
        DUNLIN_ASSIGN(stretch, pair_.agree(stretch));
      }
      const TimePoint began = now();
      DUNLIN_TRY(is_bidirectional_ ? put_both_ways(stretch) : put_many(stretch));
      rate.add(is_bidirectional_ ? 2 * stretch : stretch, now() - began);
      count -= stretch;
    }
    return Status::ok();
  }
  // `alone`: the time of a put with its flush; `streamed`: the time of a put in a stream.
  std::uint64_t stretch_for(Duration alone, Duration streamed) const {
    const Duration flush = std::max(alone - streamed, Duration::zero());
    const Duration length = std::max(kStretch, kFlushesPerStretch * flush);
    const auto puts = static_cast<std::uint64_t>(length / std::max(streamed, Duration(1)));
    return std::max(shortest_, puts);
  }

  Status warm_up(std::uint64_t count, Timer& latency, Timer& limit) {
    const auto each = static_cast<std::int64_t>(count);
    Duration alone{};
    if (pair_.leads()) {
      if (pair_.has_limit())
        DUNLIN_TRY(limit.warm_up(count, [this] { return copy_target_.copy(from_); }));
      const TimePoint began = now();
      DUNLIN_TRY(latency.warm_up(count, [this] { return put_and_flush(); }));
      alone = (now() - began) / each;
    }
    Rate untold;
    stretch_ = count;
    const TimePoint began = now();
    DUNLIN_TRY(stream(count, untold));
    stretch_ = stretch_for(alone, (now() - began) / each);
    return Status::ok();
  }

  Result<Row> measure(const Plan& plan) {
    Timer latency(plan.is_each_timed);
    Timer limit(plan.is_each_timed);
    Rate rate;
    const TimePoint warming = now();
    DUNLIN_TRY(warm_up(plan.warmup, latency, limit));
    const auto chunk = [&](std::uint64_t count) -> Status {
      if (pair_.leads()) {
        if (pair_.has_limit())
          DUNLIN_TRY(limit.run(count, [this] { return copy_target_.copy(from_); }));
        DUNLIN_TRY(latency.run(count, [this] { return put_and_flush(); }));
      }
      return stream(count, rate);
    };
    Row row;
    row.size = from_.size();
    DUNLIN_ASSIGN(row.iterations, run_chunks(pair_, plan, warming, chunk));
    if (!pair_.leads()) return row;
    row.take(latency.histogram(), 1, plan.is_each_timed);
    if (pair_.has_limit()) row.take_limit(latency, limit, 1);
    row.take_rate(rate);
    if (row.limit) row.limit_gbytes_per_s = static_cast<double>(row.size) / row.limit->p50_us / 1e3;
    return row;
  }

  Pair& pair_;
  Window& window_;
  CopyTarget& copy_target_;
  bool is_bidirectional_;
  std::uint64_t shortest_ = 1;
  std::uint64_t stretch_ = 1;
  transport::LocalSlice from_;
  transport::RemoteSlice to_;
};

}  // namespace

Status run_put(const Options& options, Job& job, const Output& output) {
  const std::size_t largest = *std::ranges::max_element(options.sizes);
  Window window(window_depth(options.depth, 0));
  DUNLIN_ASSIGN(const auto pair, Pair::create(job, largest + kGuard));
  DUNLIN_ASSIGN(CopyTarget copy_target, CopyTarget::create(job, largest));
  const char* const directions = options.is_bidirectional ? ", both ways together" : "";
  DUNLIN_TRY(print_heading(
      job, output,
      fmt::format("put + flush(remote), timed at the source; GB/s and messages of a stream of "
                  "outstanding puts{}",
                  directions),
      copy_limit(job)));
  PutBench bench(*pair, window, copy_target, options.is_bidirectional);
  for (const std::size_t size : options.sizes) {
    const std::uint32_t depth = window_depth(options.depth, size);
    DUNLIN_ASSIGN(const Row row, bench.run(size, depth, plan_for(size, options), options.checks));
    DUNLIN_TRY(report_pairs(options, job, output, depth, row));
  }
  return pair->finish();
}

}  // namespace dunlin::perf
