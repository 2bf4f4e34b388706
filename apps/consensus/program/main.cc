// dunlin-consensus: the decentralised algorithms of BlueFog (sections II and IV, appendix).
#include "apps/consensus/program/runs.h"
#include "apps/job.h"

namespace dunlin::consensus {
namespace {

Result<bool> run(transport::Fabric& fabric, const Options& options) {
  DUNLIN_ASSIGN(Output output, Output::open(options, fabric.rank() == Rank(0)));
  DUNLIN_ASSIGN(const auto communicator, collective::Communicator::create(fabric, {}));
  Setting setting{fabric, *communicator, options, output};
  auto outcome = options.command == Command::kDescent   ? run_descent(setting)
                 : options.command == Command::kPushSum ? run_averaging(setting)
                                                        : run_fish_school(setting);
  // The communicator goes when nobody needs it any more.
  if (outcome) DUNLIN_TRY(fabric.bootstrap().barrier("done", fabric.config().deadline));
  return outcome;
}

int main(int argc, char** argv) {
  int exit_code = 0;
  const auto options = parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  return run_job(options->transport,
                 [&](transport::Fabric& fabric) { return run(fabric, *options); });
}

}  // namespace
}  // namespace dunlin::consensus

int main(int argc, char** argv) {
  return dunlin::consensus::main(argc, argv);
}
