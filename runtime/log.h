// Logging: four macros over spdlog. The arguments of a message are evaluated only when its level is
// enabled. A message is one line on standard error with the rank: "dunlin[3] warning: ...". Any
// thread.
//
// A failure is logged once, by the code that handles it. A Status that is returned to the caller is
// not logged. This header does not include spdlog, whose templates cost seconds per source file.
#pragma once

#include <fmt/format.h>

#include <string>

#include "runtime/config.h"
#include "runtime/rank.h"

namespace spdlog {
class logger;
}

namespace dunlin {

// Sets the level of this process and the rank that its messages carry; a negative rank is omitted.
// All contexts of a process share the logger.
void configure_log(LogLevel level, Rank rank);

bool is_logged(LogLevel level);
void write_log(LogLevel level, const std::string& text);
// The logger itself, for changes such as adding a sink. Using it needs <spdlog/logger.h>.
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
