// Trace: what a process did when, as Chrome trace JSON (open it in Perfetto or chrome://tracing).
//
// Events go to a buffer that is allocated once; when it is full, further events are counted and the
// file says how many were dropped. Names must be string literals. Owner thread only. The file is
// written by write(), else by the destructor; its times are microseconds since the trace began, in
// the clock that was handed in, and `pid` is the rank. `dunlin-plot trace` merges the files of all
// ranks; `start_us`, when the trace began on that clock, lets it align those of one host.
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
  // That of Config::trace_file, or null where it is empty. kInvalidArgument where the `size` ranks
  // of a job would write to one file.
  static Result<std::unique_ptr<Trace>> open(const std::string& path, Rank rank, int size,
                                             const Clock& clock);
  // `path`: "%r" in it becomes the rank.
  Trace(std::string path, Rank rank, const Clock& clock, std::size_t capacity = kDefaultCapacity);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  void span(const char* name, TimePoint begin, TimePoint end, std::int64_t argument = 0);
  void instant(const char* name, std::int64_t argument = 0);
  const Clock& clock() const { return clock_; }
  const std::string& path() const { return path_; }

  // Writes all events so far. The destructor does it for who hasn't, and logs the error.
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

// Spans a scope; costs one test when there is no trace.
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
