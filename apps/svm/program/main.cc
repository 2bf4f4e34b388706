// dunlin-svm: decentralised training of a linear SVM (ASAP, section 6).
#include <fmt/format.h>

#include <cstdio>

#include "apps/svm/program/options.h"
#include "apps/svm/program/worker.h"
#include "runtime/log.h"
#include "runtime/print.h"

namespace dunlin::svm {
namespace {

int fail(const Status& status) {
  DUNLIN_ERROR("{}", status.to_string());
  const Code code = status.code();
  const bool is_the_users =
      code == Code::kInvalidArgument || code == Code::kNotFound || code == Code::kCorrupted;
  return is_the_users ? 2 : 1;
}

Result<bool> train(Bootstrap& bootstrap, const Config& config, const Options& options) {
  const SteadyClock clock;
  DUNLIN_ASSIGN(const auto trace,
                Trace::open(config.trace_file, bootstrap.rank(), bootstrap.size(), clock));
  DUNLIN_ASSIGN(const auto fabric,
                transport::Fabric::create(bootstrap, config, clock, trace.get()));
  Worker worker(*fabric, options);
  DUNLIN_TRY(worker.prepare());
  DUNLIN_ASSIGN(const bool has_reached, worker.run());
  if (trace) DUNLIN_TRY(trace->write());
  return has_reached;
}

int main(int argc, char** argv) {
  int exit_code = 0;
  const auto options = parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  Environment environment = Environment::of_process();
  if (!options->transport.empty()) environment.set("DUNLIN_TRANSPORTS", options->transport);
  const auto config = Config::parse(environment);
  if (!config) return fail(config.status());
  configure_log(config->log_level, Rank());
  auto bootstrap = Bootstrap::join(*config, environment);
  if (!bootstrap) return fail(bootstrap.status());
  configure_log(config->log_level, (*bootstrap)->rank());
  const auto outcome = train(**bootstrap, *config, *options);
  if (!outcome) return fail(outcome.status());
  if (!*outcome && (*bootstrap)->rank() == Rank(0)) {
    print_error(
        fmt::format("dunlin-svm: the objective did not reach {}\n", *options->target_objective));
  }
  return *outcome ? 0 : 3;
}

}  // namespace
}  // namespace dunlin::svm

int main(int argc, char** argv) {
  return dunlin::svm::main(argc, argv);
}
