// dunlin-info: what this host offers, which transports work here and why others do not, and the
// configuration in force.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "runtime/log.h"
#include "runtime/print.h"
#include "tools/dunlin-info/report.h"
#include "tools/dunlin-info/text.h"

namespace dunlin::tools {
namespace {

// Exit codes.
constexpr int kFailure = 1;
constexpr int kUsage = 2;

Json full_report(const Config& config) {
  const SteadyClock clock;
  Json report;
  report["host"] = host_report();
  report["memory"] = memory_report();
  report["kernel"] = kernel_report();
  report["network"] = network_report();
  report["rdma"] = rdma_report(config);
  report["gpus"] = gpu_report(config);
  report["transports"] = transport_report(config, clock);
  report["waiting"] = waiting_report(config);
  return report;
}

Status run(bool is_config_only, bool is_tuning_only, bool is_json) {
  const Environment environment = Environment::of_process();
  DUNLIN_ASSIGN(const Config config, Config::parse(environment));
  configure_log(config.log_level, Rank(0));
  const Json configuration = config_report(config, environment);
  if (is_config_only) {
    return print(is_json ? configuration.dump(2) + "\n" : config_text(configuration));
  }
  if (is_tuning_only) {
    DUNLIN_ASSIGN(const Json tuning, tuning_report(config));
    return print(is_json ? tuning.dump(2) + "\n" : tuning_text(tuning));
  }
  Json report = full_report(config);
  if (!is_json) return print(to_text(report));
  report["config"] = configuration;
  return print(report.dump(2) + "\n");
}

int main(int argc, char** argv) {
  CLI::App app(
      "Prints what this host offers (CPU, memory, kernel, network, RDMA devices, GPUs), which "
      "transports work here and why others do not, and how Dunlin is configured.",
      "dunlin-info");
  bool is_config_only = false;
  bool is_tuning_only = false;
  bool is_json = false;
  app.add_flag("--config", is_config_only, "only the configuration (DUNLIN_* variables) in force");
  app.add_flag("--tuning", is_tuning_only,
               "only the measured choices of algorithms for collectives, and why");
  app.add_flag("--json", is_json, "print JSON");
  app.footer(
      "\"reason\" says why something can't be used, \"remedy\" what to do about it. In JSON, names "
      "that end in _bytes hold bytes; what can't be found out is left out.\n"
      "Exit codes: 0 done, 1 the configuration is wrong or the output could not be written, 2 "
      "wrong usage.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  const Status status = run(is_config_only, is_tuning_only, is_json);
  if (status.is_ok()) return 0;
  print_error(fmt::format("dunlin-info: {}\n", status.message()));
  return kFailure;
}

}  // namespace
}  // namespace dunlin::tools

int main(int argc, char** argv) {
  return dunlin::tools::main(argc, argv);
}
