// dunlin-svm: decentralised training of a linear SVM (ASAP, section 6).
#include <fmt/format.h>

#include "apps/job.h"
#include "apps/svm/program/options.h"
#include "apps/svm/program/worker.h"
#include "runtime/print.h"

namespace dunlin::svm {
namespace {

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

Result<bool> run(Bootstrap& bootstrap, const Config& config, const Options& options) {
  auto outcome = train(bootstrap, config, options);
  if (outcome && !*outcome && bootstrap.rank() == Rank(0)) {
    print_error(
        fmt::format("dunlin-svm: the objective did not reach {}\n", *options.target_objective));
  }
  return outcome;
}

int main(int argc, char** argv) {
  int exit_code = 0;
  const auto options = parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  return run_job(options->transport, {[&](Bootstrap& bootstrap, const Config& config) {
                   return run(bootstrap, config, *options);
                 }});
}

}  // namespace
}  // namespace dunlin::svm

int main(int argc, char** argv) {
  return dunlin::svm::main(argc, argv);
}
