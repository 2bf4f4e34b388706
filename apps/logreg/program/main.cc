// dunlin-logreg: L2-regularized logistic regression by consensus ADMM (2D-TGA-ADMM, section 4).
#include <fmt/format.h>

#include "apps/agreement.h"
#include "apps/job.h"
#include "apps/logreg/program/trainer.h"
#include "runtime/print.h"

namespace dunlin::logreg {
namespace {

// The data are compared when they have been read.
Terms terms(const Options& options) {
  Terms terms;
  terms.add("--cost", options.cost)
      .add("--bias", options.bias)
      .add("--rho", options.rho)
      .add("--adaptive-rho", options.is_adaptive)
      .add("--iterations", options.iterations)
      .add("--absolute-tolerance", options.absolute_tolerance)
      .add("--relative-tolerance", options.relative_tolerance)
      .add("--tron-tolerance", options.tron_tolerance)
      .add("--reference", options.has_reference)
      .add("--target-error", options.target_error)
      .add("--algorithm", options.algorithm)
      .add("--groups", options.groups);
  return terms;
}

Result<bool> train(transport::Fabric& fabric, const Options& options) {
  DUNLIN_TRY(agree(fabric, "logreg/terms", fabric.bootstrap().membership().members, terms(options),
                   MemberDeath::kIsAnError, fabric.config().bootstrap_timeout));
  DUNLIN_ASSIGN(Output output, Output::open(options, fabric.rank() == Rank(0)));
  collective::CommunicatorOptions group;
  group.groups = options.groups;
  DUNLIN_ASSIGN(const auto communicator, collective::Communicator::create(fabric, group));
  Trainer trainer(*communicator, options, output, fabric.clock());
  DUNLIN_ASSIGN(const bool has_reached, trainer.run());
  // The communicator may go when no rank needs it any more.
  DUNLIN_TRY(fabric.bootstrap().barrier("done", fabric.config().deadline));
  if (!has_reached && fabric.rank() == Rank(0)) {
    print_error(fmt::format("dunlin-logreg: the relative error did not reach {:g}\n",
                            *options.target_error));
  }
  return has_reached;
}

}  // namespace
}  // namespace dunlin::logreg

int main(int argc, char** argv) {
  using namespace dunlin;
  return run_program(argc, argv, logreg::parse_options, logreg::train);
}
