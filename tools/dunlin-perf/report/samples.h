// Takes the samples of a benchmark. A sample is the mean of a batch of repetitions, which is so
// long (kBatchTime) that reading the clock does not count; or a single repetition, if that was
// requested.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/clock.h"
#include "runtime/status.h"
#include "tools/dunlin-perf/report/histogram.h"

namespace dunlin::perf {

double median(std::vector<double> values);

// Times one kind of operation, chunk by chunk.
class Timer {
 public:
  explicit Timer(bool is_each_timed) : is_each_timed_(is_each_timed) {}

  // Runs `operation` (a function that returns a Status) `count` times.
  template <typename Operation>
  Status run(std::uint64_t count, Operation&& operation) {
    chunk_.clear();
    for (std::uint64_t done = 0; done < count;) {
      const std::uint64_t batch = std::min(batch_, count - done);
      const TimePoint began = clock_.now();
      for (std::uint64_t i = 0; i < batch; ++i) DUNLIN_TRY(operation());
      chunk_.push_back(static_cast<double>((clock_.now() - began).count()) /
                       static_cast<double>(batch));
      done += batch;
    }
    add_chunk();
    return Status::ok();
  }
  // Repeats without taking samples, and chooses the size of a batch.
  template <typename Operation>
  Status warm_up(std::uint64_t count, Operation&& operation) {
    const TimePoint began = clock_.now();
    for (std::uint64_t i = 0; i < count; ++i) DUNLIN_TRY(operation());
    choose_batch(clock_.now() - began, count);
    return Status::ok();
  }

  const Histogram& histogram() const { return histogram_; }
  const std::vector<double>& chunk_medians() const { return chunk_medians_; }

 private:
  static constexpr Duration kBatchTime = std::chrono::microseconds(4);
  static constexpr std::uint64_t kMaxBatch = 64;

  void add_chunk();
  void choose_batch(Duration took, std::uint64_t count);

  SteadyClock clock_;
  bool is_each_timed_;
  std::uint64_t batch_ = 1;
  std::vector<double> chunk_;  // nanoseconds
  Histogram histogram_;
  std::vector<double> chunk_medians_;
};

// The median over the chunks of ours / limit. Each chunk compares times from the same milliseconds.
double paired_ratio(const Timer& ours, const Timer& limit);

// The operations per second of a stream: the median over its stretches.
class Rate {
 public:
  void add(std::uint64_t operations, Duration took) {
    per_second_.push_back(static_cast<double>(operations) / to_seconds(took));
  }
  double per_second() const { return median(per_second_); }

 private:
  std::vector<double> per_second_;
};

}  // namespace dunlin::perf
