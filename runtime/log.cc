#include "runtime/log.h"

#include <spdlog/sinks/stdout_sinks.h>

namespace dunlin {

spdlog::logger& log() {
  static const auto logger = [] {
    auto made = std::make_shared<spdlog::logger>("dunlin",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_level(spdlog::level::warn);
    made->set_pattern("dunlin %l: %v");
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *logger;
}

void configure_log(LogLevel level, Rank rank) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::trace, spdlog::level::debug,
                                                   spdlog::level::info,  spdlog::level::warn,
                                                   spdlog::level::err,   spdlog::level::off};
  log().set_level(kLevels[static_cast<int>(level)]);
  log().set_pattern(rank.value() < 0 ? "dunlin %l: %v"
                                     : "dunlin[" + std::to_string(rank.value()) + "] %l: %v");
}

}  // namespace dunlin
