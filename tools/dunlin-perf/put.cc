// put: one rank puts, the other's CPU stays out of it (it sleeps, unless the transport needs its
// progress). Timed at the putting side, beside memcpy of the same size between memory of the same
// kind:
//   - put + flush(remote), one at a time;
//   - a window of `depth` puts, then one flush: bandwidth.
#include <algorithm>
#include <cstring>

#include "tools/dunlin-perf/benchmarks.h"
#include "tools/dunlin-perf/check.h"
#include "tools/dunlin-perf/pair.h"

namespace dunlin::perf {
namespace {

constexpr std::uint32_t kWindow = 16;
// A window ends within a time slice of the kernel's, or all of them hold an interruption.
constexpr std::size_t kWindowBytes = 8 << 20;
constexpr std::size_t kGuard = 64;  // bytes behind the message that must stay as they are

// `depth`: what was asked for; 0: nothing.
std::uint32_t window_of(std::uint32_t depth, std::size_t size) {
  if (depth != 0) return depth;
  const std::size_t fitting = kWindowBytes / std::max<std::size_t>(size, 1);
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(fitting, 1, kWindow));
}

class PutBench {
 public:
  PutBench(Pair& pair, MemoryRegion& copy_target) : pair_(pair), copy_target_(copy_target) {}

  // Leads: puts, times, fills `row`. Otherwise verifies, and waits.
  Status run(std::size_t size, std::uint32_t window, const Plan& plan, bool checks, Row& row) {
    window_ = window;
    DUNLIN_ASSIGN(from_, pair_.source().slice(0, size));
    DUNLIN_ASSIGN(to_, pair_.remote().slice(0, size));
    if (checks) DUNLIN_TRY(check(size));
    if (pair_.leads()) DUNLIN_TRY(measure(plan, row));
    return pair_.sync();
  }

 private:
  Status put() {
    return pair_.job().post(pair_.partner(), [&] { return pair_.lane().put(from_, to_, nullptr); });
  }
  Status put_and_flush() {
    DUNLIN_TRY(put());
    return pair_.flush(transport::Visibility::kRemote);
  }
  Status put_window() {
    for (std::uint32_t i = 0; i < window_; ++i) DUNLIN_TRY(put());
    return pair_.flush(transport::Visibility::kRemote);
  }
  Status copy() {
    std::memcpy(copy_target_.data(), from_.data(), from_.size());
    asm volatile("" ::: "memory");  // each copy counts
    return Status::ok();
  }

  Status check(std::size_t size) {
    const std::uint64_t seed = size + 1;
    const std::span<std::byte> guard = pair_.target().memory()->bytes().subspan(size, kGuard);
    fill(guard, seed + 1);
    DUNLIN_TRY(pair_.sync());
    if (pair_.leads()) {
      fill({from_.data(), size}, seed);
      DUNLIN_TRY(put_and_flush());
    }
    DUNLIN_TRY(pair_.sync());
    if (pair_.leads()) return Status::ok();
    DUNLIN_TRY(verify({pair_.target().data(), size}, seed, "put"));
    return verify(guard, seed + 1, "stretch behind a put");
  }

  Status measure(const Plan& plan, Row& row) {
    Timer latency;
    Timer window;
    Timer limit;
    const std::uint64_t windows = std::max<std::uint64_t>(1, plan.per_chunk / window_);
    const auto one = [this] { return put_and_flush(); };
    const auto many = [this] { return put_window(); };
    const auto bare = [this] { return copy(); };
    DUNLIN_TRY(limit.warm_up(plan.warmup, bare));
    DUNLIN_TRY(latency.warm_up(plan.warmup, one));
    DUNLIN_TRY(window.warm_up(std::max<std::uint64_t>(1, plan.warmup / window_), many));
    for (std::uint64_t chunk = 0; chunk < plan.chunks; ++chunk) {
      DUNLIN_TRY(limit.run(plan.per_chunk, bare));
      DUNLIN_TRY(latency.run(plan.per_chunk, one));
      DUNLIN_TRY(window.run(windows, many));
    }
    row.size = from_.size();
    row.iterations = plan.iterations();
    row.ours = latency.summary();
    row.limit = limit.summary();
    row.ratio = paired_ratio(latency, limit);
    const auto bytes = static_cast<double>(from_.size());
    row.gbytes_per_s = bytes * window_ / window.summary().p50_us / 1e3;
    row.limit_gbytes_per_s = bytes / row.limit->p50_us / 1e3;
    row.messages_per_s = window_ / window.summary().p50_us * 1e6;
    return Status::ok();
  }

  Pair& pair_;
  std::uint32_t window_ = 1;
  MemoryRegion& copy_target_;
  transport::LocalSlice from_;
  transport::RemoteSlice to_;
};

}  // namespace

Status run_put(const Options& options, Job& job, const Output& output) {
  const std::size_t largest = *std::max_element(options.sizes.begin(), options.sizes.end());
  DUNLIN_ASSIGN(const auto pair, Pair::create(job, largest + kGuard));
  MemoryRegion::Options kind;
  kind.huge_pages = job.config().huge_pages;
  DUNLIN_ASSIGN(const auto copy_target, MemoryRegion::allocate(largest + kGuard, kind));
  if (job.is_root()) {
    DUNLIN_TRY(output.text(
        "put + flush(remote), timed at the source; GB/s and messages of a window of puts; "
        "limit: memcpy\n" +
        format_heading("memcpy")));
  }
  PutBench bench(*pair, *copy_target);
  for (const std::size_t size : options.sizes) {
    Row row;
    const std::uint32_t window = window_of(options.depth, size);
    const Plan plan = plan_for(size, options.iterations, options.warmup);
    DUNLIN_TRY(bench.run(size, window, plan, options.checks, row));
    DUNLIN_TRY(report_pairs(options, job, output, window, row));
  }
  return pair->sync();
}

}  // namespace dunlin::perf
