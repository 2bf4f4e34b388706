// Trace records the events of a process as Chrome trace JSON, for Perfetto or chrome://tracing.
//
// Events go to a buffer that is allocated once. When it is full, further events are dropped, and
// the file contains their number. Names must be string literals. Owner thread only.
//
// write() or else the destructor writes the file. Its times are microseconds since the trace began
// on the given clock, and `pid` is the rank. `start_us` is the time at which the trace began on
// that clock: `dunlin-plot trace`, which merges the files of all ranks, aligns the ranks of a host
// by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin {

class Trace {
 public:
  // `path` is Config::trace_file; when it is empty, the result is null. kInvalidArgument when the
  // `size` ranks of the job would write to the same file.
  static Result<std::unique_ptr<Trace>> open(const std::string& path, Rank rank, int size,
                                             const Clock& clock);
  // "%r" in `path` becomes the rank.
  Trace(std::string path, Rank rank, const Clock& clock, std::size_t capacity = kDefaultCapacity);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  void span(const char* name, TimePoint begin, TimePoint end, std::int64_t argument = 0);
  void instant(const char* name, std::int64_t argument = 0);
  const Clock& clock() const { return clock_; }
  const std::string& path() const { return path_; }

  // Writes all events so far. The destructor calls it unless it was called before, and logs an
  // error.
  Status write();

 private:
  static constexpr std::size_t kDefaultCapacity = 200'000;  // 32 bytes each: 6.4 MB
  struct Event {
    const char* name;
    TimePoint begin;
    Duration length;  // negative: an instant
    std::int64_t argument;
  };
  std::string path_;
  Rank rank_;
  const Clock& clock_;
  TimePoint start_;
  std::vector<Event> events_;
  std::size_t capacity_;
  std::uint64_t dropped_ = 0;
  bool is_written_ = false;
};

// Records a span from its construction to its destruction. `trace` may be null.
class TraceSpan {
 public:
  TraceSpan(Trace* trace, const char* name, std::int64_t argument = 0)
      : trace_(trace), name_(name), argument_(argument) {
    if (trace_ != nullptr) begin_ = trace_->clock().now();
  }
  ~TraceSpan() {
    if (trace_ != nullptr) trace_->span(name_, begin_, trace_->clock().now(), argument_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace* trace_;
  const char* name_;
  std::int64_t argument_;
  TimePoint begin_{};
};

}  // namespace dunlin
