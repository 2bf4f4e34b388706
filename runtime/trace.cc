#include "runtime/trace.h"

#include <fmt/format.h>

#include "runtime/files/output_file.h"
#include "runtime/log.h"

namespace dunlin {
namespace {

std::string with_rank(std::string path, Rank rank) {
  for (auto at = path.find("%r"); at != std::string::npos; at = path.find("%r")) {
    path.replace(at, 2, std::to_string(rank.value()));
  }
  return path;
}

double microseconds(Duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

}  // namespace

Result<std::unique_ptr<Trace>> Trace::open(const std::string& path, Rank rank, int size,
                                           const Clock& clock) {
  if (path.empty()) return std::unique_ptr<Trace>();
  if (size > 1 && path.find("%r") == std::string::npos) {
    return Status(Code::kInvalidArgument,
                  "DUNLIN_TRACE: all ranks would write to the same file; put %r into its name");
  }
  return std::make_unique<Trace>(path, rank, clock);
}

Trace::Trace(std::string path, Rank rank, const Clock& clock, std::size_t capacity)
    : path_(with_rank(std::move(path), rank)),
      rank_(rank),
      clock_(clock),
      start_(clock.now()),
      capacity_(capacity) {
  events_.reserve(capacity);
}

Trace::~Trace() {
  if (is_written_) return;
  if (const Status status = write(); !status) DUNLIN_ERROR("{}", status.to_string());
}

void Trace::span(const char* name, TimePoint begin, TimePoint end, std::int64_t argument) {
  if (events_.size() == capacity_) {
    ++dropped_;
    return;
  }
  events_.push_back({name, begin, end - begin, argument});
}

void Trace::instant(const char* name, std::int64_t argument) {
  const TimePoint now = clock_.now();
  span(name, now, now - Duration(1), argument);
}

Status Trace::write() {
  is_written_ = true;
  std::string text = fmt::format(
      R"({{"displayTimeUnit":"ns","otherData":{{"dropped":{0},"start_us":{1:.3f}}},"traceEvents":[)"
      R"({{"name":"process_name","ph":"M","pid":{2},"args":{{"name":"rank {2}"}}}})",
      dropped_, microseconds(start_.time_since_epoch()), rank_.value());
  for (const Event& event : events_) {
    const bool is_instant = event.length < Duration(0);
    text += fmt::format(
        ",\n"
        R"({{"name":"{}","ph":"{}","pid":{},"tid":0,"ts":{:.3f},)",
        event.name, is_instant ? 'i' : 'X', rank_.value(), microseconds(event.begin - start_));
    if (!is_instant) text += fmt::format(R"("dur":{:.3f},)", microseconds(event.length));
    text += fmt::format(R"("args":{{"value":{}}}}})", event.argument);
  }
  text += "]}\n";
  return replace_file(path_, text).with_context("the trace");
}

}  // namespace dunlin
