#include "tools/dunlin-perf/benchmarks/plan.h"

#include <algorithm>

namespace dunlin::perf {
namespace {

constexpr std::uint64_t kChunks = 20;
constexpr std::uint64_t kMost = 40'000;    // of small messages, for tens of milliseconds over shm
constexpr std::uint64_t kBytes = 1 << 30;  // moved in all by large messages
// Samples of one chunk are kept until it ends.
constexpr std::uint64_t kMostPerChunk = 1 << 20;
// The leader sends the length of each chunk to its peer, which waits for it no longer than
// DUNLIN_DEADLINE.
constexpr Duration kLongestChunk = std::chrono::milliseconds(250);

}  // namespace

std::vector<std::size_t> sweep(std::size_t smallest, std::size_t largest) {
  std::vector<std::size_t> sizes;
  for (std::size_t size = smallest; size < largest; size = size == 0 ? 8 : 4 * size)
    sizes.push_back(size);
  sizes.push_back(largest);
  return sizes;
}

Plan plan_for(std::size_t size, const Shared& options) {
  Plan plan;
  plan.iterations = options.iterations;
  if (plan.iterations == 0) {
    plan.iterations =
        std::clamp<std::uint64_t>(kBytes / std::max<std::size_t>(size, 1), 2 * kChunks, kMost);
  }
  plan.per_chunk =
      std::clamp<std::uint64_t>((plan.iterations + kChunks - 1) / kChunks, 1, kMostPerChunk);
  plan.duration = options.duration;
  // A short duration should not be preceded by a warm-up that is as long.
  const std::uint64_t share = plan.duration == Duration::zero() ? 10 : 100;
  plan.warmup =
      options.warmup != 0 ? options.warmup : std::max<std::uint64_t>(1, plan.iterations / share);
  plan.is_each_timed = options.has_histogram;
  return plan;
}

std::uint64_t Pacer::next(TimePoint now) {
  const std::uint64_t count = plan_.duration != Duration::zero()
                                  ? next_by_time(now)
                                  : std::min(plan_.per_chunk, plan_.iterations - done_);
  done_ += count;
  return count;
}

std::uint64_t Pacer::next_by_time(TimePoint now) {
  if (done_ == 0) {
    began_ = now;
  } else {
    each_ = (now - began_) / static_cast<std::int64_t>(done_);
  }
  const Duration left = plan_.duration - (now - began_);
  if (left <= Duration::zero()) return 0;
  const Duration chunk =
      std::min({plan_.duration / static_cast<std::int64_t>(kChunks), left, kLongestChunk});
  const auto fitting = chunk / std::max(each_, Duration(1));
  return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(fitting), 1, kMostPerChunk);
}

}  // namespace dunlin::perf
