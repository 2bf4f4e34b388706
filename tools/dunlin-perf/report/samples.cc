#include "tools/dunlin-perf/report/samples.h"

namespace dunlin::perf {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Timer::add_chunk() {
  for (const double sample : chunk_) histogram_.add(sample);
  chunk_medians_.push_back(median(chunk_));
}

void Timer::choose_batch(Duration took, std::uint64_t count) {
  if (is_each_timed_ || count == 0) return;
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
