// window: the leader deposits in the window of its peer, which only calls progress().
//   - latency: accumulate (or put), then flush until it is in the peer's buffer;
//   - stream: accumulates one after the other, and one flush. If the peer's memory is not mapped,
//     the sender merges what the peer cannot take at once, so this is the rate at which deposits
//     can be made, not that of the network.
// In the end the buffer of the peer holds the sum of all, or the last put.
#include <fmt/format.h>

#include <algorithm>

#include "collectives/barrier/barrier.h"
#include "collectives/rma/neighbor_window.h"
#include "tools/dunlin-perf/benchmarks/benchmarks.h"
#include "tools/dunlin-perf/benchmarks/copy_target.h"
#include "tools/dunlin-perf/benchmarks/pair.h"
#include "tools/dunlin-perf/benchmarks/ping_pong.h"

namespace dunlin::perf {
namespace {

using collective::Barrier;
using NeighborWindow = collective::NeighborWindow<float>;

class WindowBench {
 public:
  WindowBench(Pair& pair, CopyTarget& copy_target, bool is_put)
      : pair_(pair), copy_target_(copy_target), is_put_(is_put) {}

  // `size`: bytes of the tensor, rounded down to whole elements. Collective over the pair.
  Result<Row> run(std::size_t size, const Plan& plan, bool checks) {
    collective::WindowOptions options;
    // The windows of other pairs of the job have other leaders in their names.
    const Rank leader = std::min(pair_.job().rank(), pair_.peer());
    options.name = fmt::format("perf/{}/{}", leader.value(), windows_++);
    options.neighborhood = {{pair_.peer()}, {pair_.peer()}, 1, {1}};
    options.count = size / sizeof(float);
    options.is_zeroed = true;
    transport::Fabric& fabric = pair_.job().fabric();
    DUNLIN_ASSIGN(window_, NeighborWindow::prepare(fabric, options));
    DUNLIN_ASSIGN(barrier_,
                  Barrier::prepare(fabric, options.name, {leader, Rank(leader.value() + 1)}));
    DUNLIN_TRY(window_->connect());
    DUNLIN_TRY(barrier_->connect());
    std::fill(window_->self().begin(), window_->self().end(), 1.0F);
    DUNLIN_ASSIGN(from_, pair_.source().slice(0, options.count * sizeof(float)));
    DUNLIN_ASSIGN(Row row, measure(plan));
    if (checks && !pair_.leads()) DUNLIN_TRY(check());
    DUNLIN_TRY(align());
    row.size = from_.size();
    return row;
  }

 private:
  Status start() {
    const collective::WeightedPeer to[] = {{pair_.peer(), 1}};
    ++deposits_;
    return (is_put_ ? window_->put(to) : window_->accumulate(to)).status();
  }
  Status flush() {
    Status status = window_->flush();
    if (!status.is_busy()) return status;
    DUNLIN_TRY(pair_.job().await(pair_.peer(), "deposits to be taken over",
                                 [&] { return !(status = window_->flush()).is_busy(); }));
    return status;
  }
  Status deposit() {
    DUNLIN_TRY(start());
    return flush();
  }
  Status stream(std::uint64_t count, Rate& rate) {
    const TimePoint began = pair_.job().fabric().clock().now();
    for (std::uint64_t i = 0; i < count; ++i) {
      DUNLIN_TRY(start());
      pair_.job().fabric().progress();
    }
    DUNLIN_TRY(flush());
    rate.add(count, pair_.job().fabric().clock().now() - began);
    return Status::ok();
  }
  // Returns when both ranks have called it. Until then it calls progress() of the window.
  Status align() {
    DUNLIN_TRY(barrier_->start());
    Status status = Status::busy();
    DUNLIN_TRY(pair_.job().await(pair_.peer(), "the end of its chunk", [&] {
      status = window_->progress();
      if (status.is_ok()) status = barrier_->test();
      return !status.is_busy();
    }));
    return status;
  }

  Result<Row> measure(const Plan& plan) {
    Timer latency(plan.is_each_timed);
    Timer limit(plan.is_each_timed);
    Rate rate;
    Rate untold;
    deposits_ = 0;
    const TimePoint warming = pair_.job().fabric().clock().now();
    if (pair_.leads()) {
      if (pair_.has_limit())
        DUNLIN_TRY(limit.warm_up(plan.warmup, [this] { return copy_target_.copy(from_); }));
      DUNLIN_TRY(latency.warm_up(plan.warmup, [this] { return deposit(); }));
      DUNLIN_TRY(stream(plan.warmup, untold));
    }
    DUNLIN_TRY(align());
    const auto chunk = [&](std::uint64_t count) -> Status {
      if (pair_.leads()) {
        if (pair_.has_limit())
          DUNLIN_TRY(limit.run(count, [this] { return copy_target_.copy(from_); }));
        DUNLIN_TRY(latency.run(count, [this] { return deposit(); }));
        DUNLIN_TRY(stream(count, rate));
      }
      return align();
    };
    Row row;
    DUNLIN_ASSIGN(row.iterations, run_chunks(pair_, plan, warming, chunk));
    if (!pair_.leads()) {
      deposits_ = 2 * (row.iterations + plan.warmup);
      return row;
    }
    row.size = from_.size();
    row.take(latency.histogram(), 1, plan.is_each_timed);
    if (pair_.has_limit()) row.take_limit(latency, limit, 1);
    row.take_rate(rate);
    return row;
  }

  Status check() {
    DUNLIN_ASSIGN(const auto buffer, window_->buffer(pair_.peer()));
    // A float stops growing after 2^24 additions of one.
    const auto expected =
        is_put_ ? 1.0F : static_cast<float>(std::min(deposits_, std::uint64_t{1} << 24));
    const bool is_right = std::all_of(buffer.tensor.begin(), buffer.tensor.end(),
                                      [&](const float element) { return element == expected; });
    if (is_right && buffer.version == deposits_) return Status::ok();
    return {Code::kCorrupted,
            fmt::format("{} deposits of ones have arrived as {} of {}", deposits_, buffer.version,
                        buffer.tensor.empty() ? 0 : buffer.tensor.front())};
  }

  Pair& pair_;
  CopyTarget& copy_target_;
  const bool is_put_;
  std::unique_ptr<NeighborWindow> window_;
  std::unique_ptr<Barrier> barrier_;
  transport::LocalSlice from_;
  std::uint64_t deposits_ = 0;
  int windows_ = 0;
};

}  // namespace

Status run_window(const Options& options, Job& job, const Output& output) {
  const std::size_t largest = *std::ranges::max_element(options.sizes);
  DUNLIN_ASSIGN(const auto pair, Pair::create(job, largest));
  DUNLIN_ASSIGN(CopyTarget copy_target, CopyTarget::create(job, largest));
  DUNLIN_TRY(print_heading(
      job, output,
      fmt::format("window: {} + flush, until it is in the neighbor's buffer; rates of deposits "
                  "that may be merged",
                  options.is_put ? "put" : "accumulate"),
      kMemcpy));
  WindowBench bench(*pair, copy_target, options.is_put);
  for (const std::size_t size : options.sizes) {
    DUNLIN_ASSIGN(const Row row, bench.run(size, plan_for(size, options), options.checks));
    DUNLIN_TRY(report_pairs(options, job, output, 0, row));
  }
  return pair->sync();
}

}  // namespace dunlin::perf
