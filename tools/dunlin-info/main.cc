// dunlin-info: prints what this build and this host offer, which transports work here, why others
// do not, and the configuration in force.
#include <fmt/format.h>

#include "apps/command_line/command_line.h"
#include "runtime/log.h"
#include "runtime/print.h"
#include "tools/dunlin-info/report.h"
#include "tools/dunlin-info/text.h"
#include "tools/lib/output.h"

namespace dunlin::tools {
namespace {

constexpr int kFailure = 1;  // exit code

Json full_report(const Config& config) {
  const SteadyClock clock;
  Json report;
  report["build"] = build_report();
  report["host"] = host_report();
  report["memory"] = memory_report();
  report["kernel"] = kernel_report();
  report["network"] = network_report();
  report["rdma"] = rdma_report(config);
  report["gpus"] = gpu_report(config);
  report["transports"] = transport_report(config, clock);
  report["containers"] = container_report(config);
  report["waiting"] = waiting_report(config);
  return report;
}

struct Options {
  bool has_config_only = false;
  bool has_tuning_only = false;
  std::string json;  // as Output::open() takes it
};

Status run(const Options& options) {
  const Environment environment = Environment::of_process();
  DUNLIN_ASSIGN(const Config config, Config::parse(environment));
  configure_log(config.log_level, Rank(0));
  DUNLIN_ASSIGN(const auto output, Output::open(options.json));
  const Json configuration = config_report(config, environment);
  if (options.has_config_only) {
    DUNLIN_TRY(output->text(config_text(configuration)));
    return output->json(configuration);
  }
  if (options.has_tuning_only) {
    DUNLIN_ASSIGN(const Json tuning, tuning_report(config));
    DUNLIN_TRY(output->text(tuning_text(tuning)));
    return output->json(tuning);
  }
  Json report = full_report(config);
  DUNLIN_TRY(output->text(to_text(report)));
  report["config"] = configuration;
  return output->json(report);
}

int main(int argc, char** argv) {
  CLI::App app(
      "Prints what this build and this host offer (CPU, memory, kernel, network, RDMA devices, "
      "GPUs), which transports work here and why others do not, and how Dunlin is configured.",
      "dunlin-info");
  Options options;
  app.add_flag("--config", options.has_config_only,
               "print only the configuration (DUNLIN_* variables) in force");
  app.add_flag("--tuning", options.has_tuning_only,
               "print only the measured choices of algorithms for collectives, and their reasons");
  add_json_options(app, options.json);
  app.footer(
      "\"reason\" says why something cannot be used, \"remedy\" what to do about it. JSON is one "
      "object in one line. Members whose names end in _bytes hold bytes; what cannot be found out "
      "is left out.\n"
      "Exit codes: 0 done, 1 the configuration is wrong or the output could not be written, 2 "
      "wrong usage.");
  if (const auto code = parse_command_line(app, argc, argv)) return *code;
  const Status status = run(options);
  if (status.is_ok()) return 0;
  print_error(fmt::format("dunlin-info: {}\n", status.message()));
  return kFailure;
}

}  // namespace
}  // namespace dunlin::tools

int main(int argc, char** argv) {
  return dunlin::tools::main(argc, argv);
}
