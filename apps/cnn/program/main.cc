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

}  // namespace
}  // namespace dunlin::cnn

int main(int argc, char** argv) {
  using namespace dunlin;
  return run_program(argc, argv, cnn::parse_options, cnn::train);
}
