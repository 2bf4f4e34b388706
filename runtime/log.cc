#include "runtime/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <memory>

namespace dunlin {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::trace, spdlog::level::debug,
                                                   spdlog::level::info,  spdlog::level::warn,
                                                   spdlog::level::err,   spdlog::level::off};
  return kLevels[static_cast<int>(level)];
}

}  // namespace

// Never destroyed: threads of a host program may still log while the process ends.
spdlog::logger& logger() {
  static auto* const kLogger = [] {
    auto* const logger =
        new spdlog::logger("dunlin", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_level(spdlog::level::warn);
    logger->set_pattern("dunlin %l: %v");
    logger->flush_on(spdlog::level::trace);
    return logger;
  }();
  return *kLogger;
}

void configure_log(LogLevel level, Rank rank) {
  logger().set_level(to_spdlog(level));
  logger().set_pattern(rank.value() < 0 ? "dunlin %l: %v"
                                        : "dunlin[" + std::to_string(rank.value()) + "] %l: %v");
}

bool is_logged(LogLevel level) {
  return logger().should_log(to_spdlog(level));
}

void write_log(LogLevel level, const std::string& text) {
  logger().log(to_spdlog(level), spdlog::string_view_t(text));
}

}  // namespace dunlin
