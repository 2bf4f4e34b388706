// Logging: spdlog behind four macros, so that a message's arguments cost nothing below the level.
// Messages go to standard error, one line each, with the rank: "dunlin[3] warn: ...". Any thread.
//
// A failure is logged once, where it is decided what to do about it; a Status that is passed up is
// not.
#pragma once

#include <spdlog/spdlog.h>

#include "runtime/config.h"
#include "runtime/rank.h"

namespace dunlin {

// Sets the process's level and the rank that its messages carry. The logger is the one thing that
// is shared by all contexts of a process.
void configure_log(LogLevel level, Rank rank);
spdlog::logger& log();

}  // namespace dunlin

#define DUNLIN_DEBUG(...) ::dunlin::log().debug(__VA_ARGS__)
#define DUNLIN_INFO(...) ::dunlin::log().info(__VA_ARGS__)
#define DUNLIN_WARN(...) ::dunlin::log().warn(__VA_ARGS__)
#define DUNLIN_ERROR(...) ::dunlin::log().error(__VA_ARGS__)
