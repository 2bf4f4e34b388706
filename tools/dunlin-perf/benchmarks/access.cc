// get and atomic: one rank reads from the memory of its peer, or adds to a word of it, without the
// CPU of the peer. Timed at the acting side:
//   - one access at a time, until its result is there;
//   - a stream that keeps `depth` accesses outstanding.
// The limit is the same on memory of its own: memcpy, or an atomic addition by the CPU.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "tools/dunlin-perf/benchmarks/benchmarks.h"
#include "tools/dunlin-perf/benchmarks/check.h"
#include "tools/dunlin-perf/benchmarks/copy_target.h"
#include "tools/dunlin-perf/benchmarks/ping_pong.h"
#include "tools/dunlin-perf/benchmarks/window.h"

namespace dunlin::perf {
namespace {

using transport::Completion;

// An Access is a type with post(Completion*) and bare(), which return a Status.
class Get {
 public:
  static Result<Get> create(Pair& pair, CopyTarget& copy_target, std::size_t size) {
    transport::RemoteReads* const reads = pair.lane().reads();
    if (reads == nullptr)
      return Status(Code::kUnavailable, "the transport has no remote reads").with_peer(pair.peer());
    DUNLIN_ASSIGN(const auto from, pair.remote().slice(0, size));
    DUNLIN_ASSIGN(const auto to, pair.source().slice(0, size));
    return Get(*reads, from, to, copy_target);
  }

  Status post(Completion* completion) { return reads_->get(from_, to_, completion); }
  Status bare() { return copy_target_->copy(to_); }

 private:
  Get(transport::RemoteReads& reads, transport::RemoteSlice from, transport::LocalSlice to,
      CopyTarget& copy_target)
      : reads_(&reads), from_(from), to_(to), copy_target_(&copy_target) {}

  transport::RemoteReads* reads_;
  transport::RemoteSlice from_;
  transport::LocalSlice to_;
  CopyTarget* copy_target_;
};

class Addition {
 public:
  static Result<Addition> create(Pair& pair) {
    transport::RemoteAtomics* const atomics = pair.lane().atomics();
    if (atomics == nullptr)
      return Status(Code::kUnavailable, "the transport has no remote atomics")
          .with_peer(pair.peer());
    DUNLIN_ASSIGN(const auto word, pair.remote().slice(0, sizeof(std::uint64_t)));
    return Addition(*atomics, word, reinterpret_cast<std::uint64_t*>(pair.source().data()));
  }

  Status post(Completion* completion) { return atomics_->fetch_add(word_, 1, nullptr, completion); }
  Status bare() {
    std::atomic_ref(*own_).fetch_add(1);
    return Status::ok();
  }

 private:
  Addition(transport::RemoteAtomics& atomics, transport::RemoteSlice word, std::uint64_t* own)
      : atomics_(&atomics), word_(word), own_(own) {}

  transport::RemoteAtomics* atomics_;
  transport::RemoteSlice word_;
  std::uint64_t* own_;
};

template <typename Access>
class AccessBench {
 public:
  // The window has its depth already.
  AccessBench(Pair& pair, Window& window, Access access)
      : pair_(pair), window_(window), access_(std::move(access)) {}

  // Makes one access and waits for its completion.
  Status act() {
    DUNLIN_TRY(post());
    return window_.drain(pair_);
  }

  // To be called on both ranks; the row of the leader is filled. `total`: the number of accesses.
  Result<Row> measure(std::size_t size, const Plan& plan, std::uint64_t& total) {
    Timer latency(plan.is_each_timed);
    Timer limit(plan.is_each_timed);
    Rate rate;
    const TimePoint warming = now();
    if (pair_.leads()) {
      if (pair_.has_limit())
        DUNLIN_TRY(limit.warm_up(plan.warmup, [this] { return access_.bare(); }));
      DUNLIN_TRY(latency.warm_up(plan.warmup, [this] { return act(); }));
    }
    const auto chunk = [&](std::uint64_t count) -> Status {
      if (!pair_.leads()) return Status::ok();
      if (pair_.has_limit()) DUNLIN_TRY(limit.run(count, [this] { return access_.bare(); }));
      DUNLIN_TRY(latency.run(count, [this] { return act(); }));
      return stream(count, rate);
    };
    Row row;
    row.size = size;
    DUNLIN_ASSIGN(row.iterations, run_chunks(pair_, plan, warming, chunk));
    total = plan.warmup + 2 * row.iterations;
    DUNLIN_TRY(pair_.sync());
    if (!pair_.leads()) return row;
    row.take(latency.histogram(), 1, plan.is_each_timed);
    if (pair_.has_limit()) row.take_limit(latency, limit, 1);
    row.take_rate(rate);
    return row;
  }

 private:
  TimePoint now() const { return pair_.job().fabric().clock().now(); }
  Status post() {
    return window_.post(pair_, [this](Completion* completion) { return access_.post(completion); });
  }
  Status stream(std::uint64_t count, Rate& rate) {
    const TimePoint began = now();
    for (std::uint64_t i = 0; i < count; ++i) DUNLIN_TRY(post());
    DUNLIN_TRY(window_.drain(pair_));
    rate.add(count, now() - began);
    return Status::ok();
  }

  Pair& pair_;
  Window& window_;
  Access access_;
};

// Checks that the leader reads what the peer has in its target, and that nothing behind is changed.
Status check_get(Pair& pair, AccessBench<Get>& bench, std::size_t size) {
  const std::uint64_t seed = 3 * size + 1;
  const std::span<std::byte> guard = pair.source().memory()->bytes().subspan(size, kGuard);
  Job& job = pair.job();
  DUNLIN_TRY(fill(job, guard, seed + 1));
  if (!pair.leads()) DUNLIN_TRY(fill(job, {pair.target().data(), size}, seed));
  DUNLIN_TRY(pair.sync());
  if (pair.leads()) {
    DUNLIN_TRY(bench.act());
    DUNLIN_TRY(verify(job, {pair.source().data(), size}, seed, "get"));
    DUNLIN_TRY(verify(job, guard, seed + 1, "stretch behind a get"));
  }
  return pair.sync();
}

// Checks the word of the peer after `expected` additions of the leader.
Status check_sum(Pair& pair, std::uint64_t expected) {
  if (pair.leads()) return Status::ok();
  auto& word = *reinterpret_cast<std::uint64_t*>(pair.target().data());
  const std::uint64_t found = std::atomic_ref(word).load();
  if (found == expected) return Status::ok();
  return {Code::kCorrupted, fmt::format("{} additions of 1 made {}", expected, found)};
}

}  // namespace

Status run_get(const Options& options, Job& job, const Output& output) {
  const std::size_t largest = *std::ranges::max_element(options.sizes);
  Window window(window_depth(options.depth, 0));
  DUNLIN_ASSIGN(const auto pair, Pair::create(job, largest + kGuard));
  DUNLIN_ASSIGN(CopyTarget copy_target, CopyTarget::create(job, largest));
  DUNLIN_TRY(print_heading(job, output,
                           "get, timed at the reader until the bytes are there; GB/s and messages "
                           "of a stream of outstanding gets",
                           copy_limit(job)));
  for (const std::size_t size : options.sizes) {
    const std::uint32_t depth = window_depth(options.depth, size);
    window.resize(depth);
    DUNLIN_ASSIGN(Get get, Get::create(*pair, copy_target, size));
    AccessBench<Get> bench(*pair, window, get);
    if (options.checks) DUNLIN_TRY(check_get(*pair, bench, size));
    std::uint64_t total = 0;
    DUNLIN_ASSIGN(const Row row, bench.measure(size, plan_for(size, options), total));
    DUNLIN_TRY(report_pairs(options, job, output, depth, row));
  }
  return pair->finish();
}

Status run_atomic(const Options& options, Job& job, const Output& output) {
  constexpr std::size_t kSize = sizeof(std::uint64_t);
  const std::uint32_t depth = window_depth(options.depth, kSize);
  Window window(depth);
  DUNLIN_ASSIGN(const auto pair, Pair::create(job, kSize));
  DUNLIN_TRY(print_heading(job, output,
                           "fetch-and-add of 64 bits, timed at the adder until the former value is "
                           "there; messages of a stream",
                           {"own CPU", "an atomic addition of the CPU to its own memory"}));
  DUNLIN_ASSIGN(Addition addition, Addition::create(*pair));
  AccessBench<Addition> bench(*pair, window, addition);
  std::uint64_t total = 0;
  DUNLIN_ASSIGN(const Row row, bench.measure(kSize, plan_for(kSize, options), total));
  if (options.checks) DUNLIN_TRY(check_sum(*pair, total));
  DUNLIN_TRY(report_pairs(options, job, output, depth, row));
  return pair->sync();
}

}  // namespace dunlin::perf
