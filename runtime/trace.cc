#include "runtime/trace.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>

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

Trace::Trace(std::string path, Rank rank, const Clock& clock, std::size_t capacity)
    : path_(with_rank(std::move(path), rank)),
      rank_(rank),
      clock_(clock),
      start_(clock.now()),
      capacity_(capacity) {
  events_.reserve(capacity);
}

Trace::~Trace() {
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
  std::FILE* file = std::fopen(path_.c_str(), "w");
  if (file == nullptr) return Status::from_errno("writing the trace " + path_, errno);
  fmt::print(
      file,
      R"({{"displayTimeUnit":"ns","otherData":{{"dropped":{},"start_us":{:.3f}}},"traceEvents":[)",
      dropped_, microseconds(start_.time_since_epoch()));
  fmt::print(file, R"({{"name":"process_name","ph":"M","pid":{0},"args":{{"name":"rank {0}"}}}})",
             rank_.value());
  for (const Event& event : events_) {
    const bool is_instant = event.length < Duration(0);
    fmt::print(file,
               ",\n"
               R"({{"name":"{}","ph":"{}","pid":{},"tid":0,"ts":{:.3f},)",
               event.name, is_instant ? 'i' : 'X', rank_.value(),
               microseconds(event.begin - start_));
    if (!is_instant) fmt::print(file, R"("dur":{:.3f},)", microseconds(event.length));
    fmt::print(file, R"("args":{{"value":{}}}}})", event.argument);
  }
  fmt::print(file, "]}}\n");
  const bool is_written = std::ferror(file) == 0;
  if (std::fclose(file) != 0 || !is_written)
    return Status::from_errno("writing the trace " + path_, errno);
  return Status::ok();
}

}  // namespace dunlin
