// dunlin-cnn: data-parallel training of convolutional networks (ASAP, section 6; Ripples / Prague,
// section 7).
#include <fmt/format.h>

#include "apps/cnn/program/trainer.h"
#include "apps/job.h"
#include "runtime/print.h"

namespace dunlin::cnn {
namespace {

Result<bool> train(Bootstrap& bootstrap, const Config& config, const Options& options) {
  const SteadyClock clock;
  DUNLIN_ASSIGN(const auto trace,
                Trace::open(config.trace_file, bootstrap.rank(), bootstrap.size(), clock));
  DUNLIN_ASSIGN(Output output, Output::open(options, bootstrap.rank() == Rank(0)));
  DUNLIN_ASSIGN(const auto fabric,
                transport::Fabric::create(bootstrap, config, clock, trace.get()));
  Trainer trainer(*fabric, options, output);
  auto outcome = trainer.run();
  if (outcome && trace) DUNLIN_TRY(trace->write());
  return outcome;
}

Result<bool> run(Bootstrap& bootstrap, const Config& config, const Options& options) {
  auto outcome = train(bootstrap, config, options);
  if (outcome && !*outcome && bootstrap.rank() == Rank(0)) {
    print_error(fmt::format("dunlin-cnn: the loss did not reach {:g}\n", *options.target_loss));
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
}  // namespace dunlin::cnn

int main(int argc, char** argv) {
  return dunlin::cnn::main(argc, argv);
}
