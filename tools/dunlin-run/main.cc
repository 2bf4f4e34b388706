// dunlin-run: starts N local ranks. It serves one host and never becomes a scheduler.
#include <fmt/format.h>

#include "runtime/log.h"
#include "runtime/print.h"
#include "tools/dunlin-run/launcher.h"

namespace {

constexpr int kUsage = 2;
constexpr int kCannotStart = 127;

int fail(const dunlin::Status& status, int code) {
  dunlin::print_error(fmt::format("dunlin-run: {}\n", status.message()));
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  int exit_code = 0;
  auto options = dunlin::run::parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  const dunlin::Environment environment = dunlin::Environment::of_process();
  const auto config = dunlin::Config::parse(environment);
  if (!config) return fail(config.status(), kUsage);
  dunlin::configure_log(config->log_level, dunlin::Rank());

  dunlin::run::Launcher launcher(std::move(*options), *config, environment);
  if (const dunlin::Status status = launcher.start(); !status) return fail(status, kCannotStart);
  return launcher.run();
}
