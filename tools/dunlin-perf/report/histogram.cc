#include "tools/dunlin-perf/report/histogram.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace dunlin::perf {

Histogram::Histogram() : counts_(std::size_t{kOctaves} * kPerOctave) {}

std::size_t Histogram::place_of(double nanoseconds) {
  int exponent = 0;
  const double mantissa = std::frexp(nanoseconds, &exponent);  // 0.5 .. 1
  const int octave = exponent - 1 - kLowest;
  if (!(nanoseconds > 0) || octave < 0) return 0;
  if (octave >= kOctaves) return std::size_t{kOctaves} * kPerOctave - 1;
  const auto within = static_cast<std::size_t>((mantissa - 0.5) * 2 * kPerOctave);
  return static_cast<std::size_t>(octave) * kPerOctave + within;
}

double Histogram::bound_of(std::size_t place) {
  const auto octave = static_cast<int>(place / kPerOctave);
  const double within = static_cast<double>(place % kPerOctave) / kPerOctave;
  return std::ldexp(1 + within, octave + kLowest);
}

void Histogram::add(double nanoseconds) {
  least_ = count_ == 0 ? nanoseconds : std::min(least_, nanoseconds);
  most_ = count_ == 0 ? nanoseconds : std::max(most_, nanoseconds);
  sum_ += nanoseconds;
  ++count_;
  ++counts_[place_of(nanoseconds)];
}

double Histogram::quantile(double share) const {
  if (count_ == 0) return 0;
  const auto wanted = static_cast<std::uint64_t>(share * static_cast<double>(count_ - 1) + 0.5) + 1;
  std::size_t place = 0;
  for (std::uint64_t seen = counts_[0]; seen < wanted;) seen += counts_[++place];
  return std::clamp((bound_of(place) + bound_of(place + 1)) / 2, least_, most_);
}

Summary Histogram::summary(double scale) const {
  if (count_ == 0) return {};
  const double us = scale / 1e3;
  return {quantile(0.5) * us,   quantile(0.9) * us, quantile(0.99) * us,
          quantile(0.999) * us, most_ * us,         sum_ / static_cast<double>(count_) * us,
          least_ * us};
}

std::vector<Bucket> Histogram::buckets(double scale) const {
  constexpr std::size_t kWidth = kPerOctave / kToldPerOctave;
  std::vector<Bucket> told;
  for (std::size_t place = 0; place < counts_.size(); place += kWidth) {
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < kWidth; ++i) count += counts_[place + i];
    if (count == 0) continue;
    const double us = scale / 1e3;
    told.push_back({bound_of(place) * us, bound_of(place + kWidth) * us, count});
  }
  return told;
}

std::vector<Bucket> merge(const std::vector<std::vector<Bucket>>& parts) {
  std::map<double, Bucket> merged;
  for (const auto& part : parts) {
    for (const Bucket& bucket : part) {
      Bucket& sum =
          merged.try_emplace(bucket.from_us, bucket.from_us, bucket.to_us, 0).first->second;
      sum.count += bucket.count;
    }
  }
  std::vector<Bucket> ascending;
  for (const auto& [from, bucket] : merged) ascending.push_back(bucket);
  return ascending;
}

}  // namespace dunlin::perf
