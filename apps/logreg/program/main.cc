// dunlin-logreg: L2-regularised logistic regression by consensus ADMM (2D-TGA-ADMM, section 4).
#include <fmt/format.h>

#include "apps/job.h"
#include "apps/logreg/program/trainer.h"
#include "runtime/print.h"

namespace dunlin::logreg {
namespace {

Result<bool> train(Bootstrap& bootstrap, const Config& config, const Options& options) {
  const SteadyClock clock;
  DUNLIN_ASSIGN(const auto trace,
                Trace::open(config.trace_file, bootstrap.rank(), bootstrap.size(), clock));
  DUNLIN_ASSIGN(Output output, Output::open(options, bootstrap.rank() == Rank(0)));
  DUNLIN_ASSIGN(const auto fabric,
                transport::Fabric::create(bootstrap, config, clock, trace.get()));
  collective::CommunicatorOptions group;
  group.groups = options.groups;
  DUNLIN_ASSIGN(const auto communicator, collective::Communicator::create(*fabric, group));
  Trainer trainer(*communicator, options, output, clock);
  auto outcome = trainer.run();
  if (!outcome) return outcome;
  // The communicator goes when nobody needs it any more.
  DUNLIN_TRY(bootstrap.barrier("done", config.deadline));
  if (trace) DUNLIN_TRY(trace->write());
  return outcome;
}

Result<bool> run(Bootstrap& bootstrap, const Config& config, const Options& options) {
  auto outcome = train(bootstrap, config, options);
  if (outcome && !*outcome && bootstrap.rank() == Rank(0)) {
    print_error(fmt::format("dunlin-logreg: the relative error did not reach {:g}\n",
                            *options.target_error));
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
}  // namespace dunlin::logreg

int main(int argc, char** argv) {
  return dunlin::logreg::main(argc, argv);
}
