// dunlin-cnn: data-parallel training of convolutional networks (ASAP, section 6; Ripples / Prague,
// section 7).
#include <fmt/format.h>

#include "apps/cnn/program/trainer.h"
#include "apps/job.h"
#include "runtime/print.h"

namespace dunlin::cnn {
namespace {

Result<bool> train(transport::Fabric& fabric, const Options& options) {
  DUNLIN_ASSIGN(Output output, Output::open(options, fabric.rank() == Rank(0)));
  Trainer trainer(fabric, options, output);
  DUNLIN_ASSIGN(const bool has_reached, trainer.run());
  if (!has_reached && fabric.rank() == Rank(0)) {
    print_error(fmt::format("dunlin-cnn: the loss did not reach {:g}\n", *options.target_loss));
  }
  return has_reached;
}

int main(int argc, char** argv) {
  int exit_code = 0;
  const auto options = parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  return run_job(options->transport,
                 [&](transport::Fabric& fabric) { return train(fabric, *options); });
}

}  // namespace
}  // namespace dunlin::cnn

int main(int argc, char** argv) {
  return dunlin::cnn::main(argc, argv);
}
