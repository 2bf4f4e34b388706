// Logging: four macros over spdlog. A message's arguments are evaluated only when its level is on.
// Messages go to standard error, one line each, with the rank: "dunlin[3] warning: ...". Any
// thread.
//
// A failure is logged once, where it is decided what to do about it; a Status that is passed up is
// not. spdlog's own headers stay out of this one: its templates cost seconds per file.
#pragma once

#include <fmt/format.h>

#include <string>

#include "runtime/config.h"
#include "runtime/rank.h"

namespace spdlog {
class logger;
}

namespace dunlin {

// Sets the process's level and the rank that its messages carry. The logger is the one thing that
// is shared by all contexts of a process.
void configure_log(LogLevel level, Rank rank);

bool is_logged(LogLevel level);
void write_log(LogLevel level, const std::string& text);
// To add sinks to, for example; needs <spdlog/logger.h>.
spdlog::logger& logger();

}  // namespace dunlin

#define DUNLIN_LOG(level, ...)                                                              \
  do {                                                                                      \
    if (::dunlin::is_logged(level)) ::dunlin::write_log(level, ::fmt::format(__VA_ARGS__)); \
  } while (false)
#define DUNLIN_DEBUG(...) DUNLIN_LOG(::dunlin::LogLevel::kDebug, __VA_ARGS__)
#define DUNLIN_INFO(...) DUNLIN_LOG(::dunlin::LogLevel::kInfo, __VA_ARGS__)
#define DUNLIN_WARN(...) DUNLIN_LOG(::dunlin::LogLevel::kWarn, __VA_ARGS__)
#define DUNLIN_ERROR(...) DUNLIN_LOG(::dunlin::LogLevel::kError, __VA_ARGS__)
