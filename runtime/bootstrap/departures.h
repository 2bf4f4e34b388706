// Departures: the ranks that have left the job and of which the others have not been told yet. It
// belongs to a JobLedger, which tells of several at a time, at an interval.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/clock.h"
#include "runtime/rank.h"

namespace dunlin::bootstrap {

class Departures {
 public:
  // `size`: the number of ranks of the job.
  explicit Departures(int size);

  // The rank leaves, by a request with this number.
  void add(Rank rank, std::uint64_t request) { pending_.emplace_back(rank, request); }
  bool is_empty() const { return pending_.empty(); }
  // All pending ones, which the others are told of now.
  std::vector<std::pair<Rank, std::uint64_t>> take();
  // Whether the others are to be told, according to the interval.
  bool is_due(TimePoint now) const { return now >= next_; }
  // When that is.
  TimePoint next() const { return next_; }
  // Begins the next interval, if others were told in this one.
  void pace(TimePoint now);

 private:
  const Duration interval_;
  std::vector<std::pair<Rank, std::uint64_t>> pending_;
  bool has_told_ = false;  // since next_ was set
  TimePoint next_{};
};

}  // namespace dunlin::bootstrap
