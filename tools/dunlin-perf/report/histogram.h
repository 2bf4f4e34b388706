// Histogram: counts latencies, with bounds that are 0.1 % apart, so that percentiles are exact to
// that. Its size does not depend on the number of samples.
#pragma once

#include <cstdint>
#include <vector>

namespace dunlin::perf {

struct Summary {
  double p50_us = 0;
  double p90_us = 0;
  double p99_us = 0;
  double p999_us = 0;
  double max_us = 0;
  double mean_us = 0;
  double min_us = 0;
};

// The number of samples from `from_us` up to, but not including, `to_us`.
struct Bucket {
  double from_us = 0;
  double to_us = 0;
  std::uint64_t count = 0;
};

class Histogram {
 public:
  Histogram();

  void add(double nanoseconds);
  std::uint64_t count() const { return count_; }
  // `scale` turns a timed value into the reported one (0.5: half a round trip).
  Summary summary(double scale = 1) const;
  // Four buckets per octave, ascending, without empty ones.
  std::vector<Bucket> buckets(double scale = 1) const;

 private:
  static constexpr int kPerOctave = 512;
  static constexpr int kToldPerOctave = 4;
  static constexpr int kLowest = -8;  // 2^-8 ns; samples outside count at the ends
  static constexpr int kOctaves = 56;

  static std::size_t place_of(double nanoseconds);
  static double bound_of(std::size_t place);
  double quantile(double share) const;

  std::vector<std::uint64_t> counts_;
  std::uint64_t count_ = 0;
  double sum_ = 0;
  double least_ = 0;
  double most_ = 0;
};

// Adds the counts of pairs that measured at the same time.
std::vector<Bucket> merge(const std::vector<std::vector<Bucket>>& parts);

}  // namespace dunlin::perf
