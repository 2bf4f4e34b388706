#include "tools/dunlin-perf/samples.h"

#include <algorithm>
#include <numeric>

namespace dunlin::perf {
namespace {

double percentile(const std::vector<double>& ascending, double share) {
  if (ascending.empty()) return 0;
  const auto last = static_cast<double>(ascending.size() - 1);
  return ascending[static_cast<std::size_t>(share * last + 0.5)];
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return percentile(values, 0.5);
}

Summary summarize(std::vector<double> samples_us, double scale) {
  if (samples_us.empty()) return {};
  std::sort(samples_us.begin(), samples_us.end());
  const double sum = std::accumulate(samples_us.begin(), samples_us.end(), 0.0);
  return {percentile(samples_us, 0.5) * scale, percentile(samples_us, 0.99) * scale,
          sum / static_cast<double>(samples_us.size()) * scale, samples_us.front() * scale};
}

Plan plan_for(std::size_t size, std::uint64_t iterations, std::uint64_t warmup) {
  constexpr std::uint64_t kChunks = 20;
  constexpr std::uint64_t kMost = 40'000;    // of small messages: tens of milliseconds over shm
  constexpr std::uint64_t kBytes = 1 << 30;  // moved in all by large ones
  if (iterations == 0) {
    iterations =
        std::clamp<std::uint64_t>(kBytes / std::max<std::size_t>(size, 1), 2 * kChunks, kMost);
  }
  Plan plan;
  plan.chunks = std::min(kChunks, iterations);
  plan.per_chunk = (iterations + plan.chunks - 1) / plan.chunks;
  plan.warmup = warmup != 0 ? warmup : std::max<std::uint64_t>(1, iterations / 10);
  return plan;
}

void Timer::add(std::vector<double> chunk) {
  samples_us_.insert(samples_us_.end(), chunk.begin(), chunk.end());
  chunk_medians_.push_back(median(std::move(chunk)));
}

void Timer::choose_batch(Duration took, std::uint64_t count) {
  const auto each = std::max<std::int64_t>(1, took.count() / static_cast<std::int64_t>(count));
  batch_ = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(kBatchTime.count() / each), 1,
                                     kMaxBatch);
}

double paired_ratio(const Timer& ours, const Timer& limit) {
  std::vector<double> ratios;
  const std::size_t chunks = std::min(ours.chunk_medians().size(), limit.chunk_medians().size());
  for (std::size_t i = 0; i < chunks; ++i) {
    ratios.push_back(ours.chunk_medians()[i] / limit.chunk_medians()[i]);
  }
  return median(std::move(ratios));
}

}  // namespace dunlin::perf
