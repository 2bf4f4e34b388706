// Samples: what a benchmark timed, and what is told of it. A sample is the mean of a batch of
// repetitions, long enough (kBatchTime) that reading the clock doesn't show.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/clock.h"
#include "runtime/status.h"

namespace dunlin::perf {

struct Summary {
  double p50_us = 0;
  double p99_us = 0;
  double mean_us = 0;
  double min_us = 0;
};

double median(std::vector<double> values);
// Of one repetition; `scale` turns what was timed into what is told (0.5: half a round trip).
Summary summarize(std::vector<double> samples_us, double scale = 1);

// Repetitions of a benchmark: `chunks` times in turns with the bare limit, `per_chunk` each.
struct Plan {
  std::uint64_t chunks = 1;
  std::uint64_t per_chunk = 1;
  std::uint64_t warmup = 1;
  std::uint64_t iterations() const { return chunks * per_chunk; }
};
// `iterations`, `warmup`: 0 for what suits messages of `size` bytes.
Plan plan_for(std::size_t size, std::uint64_t iterations, std::uint64_t warmup);

// Times one kind of operation, chunk by chunk.
class Timer {
 public:
  // Runs `operation` (a function that returns a Status) `count` times.
  template <typename Operation>
  Status run(std::uint64_t count, Operation&& operation) {
    std::vector<double> chunk;
    chunk.reserve(count / batch_ + 1);
    for (std::uint64_t done = 0; done < count;) {
      const std::uint64_t batch = std::min(batch_, count - done);
      const TimePoint began = clock_.now();
      for (std::uint64_t i = 0; i < batch; ++i) DUNLIN_TRY(operation());
      chunk.push_back(to_seconds(clock_.now() - began) * 1e6 / static_cast<double>(batch));
      done += batch;
    }
    add(std::move(chunk));
    return Status::ok();
  }
  // Untimed, and finds the size of a batch.
  template <typename Operation>
  Status warm_up(std::uint64_t count, Operation&& operation) {
    const TimePoint began = clock_.now();
    for (std::uint64_t i = 0; i < count; ++i) DUNLIN_TRY(operation());
    choose_batch(clock_.now() - began, count);
    return Status::ok();
  }

  Summary summary(double scale = 1) const { return summarize(samples_us_, scale); }
  const std::vector<double>& chunk_medians() const { return chunk_medians_; }

 private:
  static constexpr Duration kBatchTime = std::chrono::microseconds(4);
  static constexpr std::uint64_t kMaxBatch = 64;

  void add(std::vector<double> chunk);
  void choose_batch(Duration took, std::uint64_t count);

  SteadyClock clock_;
  std::uint64_t batch_ = 1;
  std::vector<double> samples_us_;
  std::vector<double> chunk_medians_;
};

// Median over the chunks of ours / limit: each chunk compares what ran within the same
// milliseconds.
double paired_ratio(const Timer& ours, const Timer& limit);

}  // namespace dunlin::perf
