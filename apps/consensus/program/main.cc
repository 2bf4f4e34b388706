// dunlin-consensus: the decentralized algorithms of BlueFog (sections II and IV, appendix).
#include "apps/consensus/program/runs.h"
#include "apps/job.h"

namespace dunlin::consensus {
namespace {

Result<bool> run(transport::Fabric& fabric, const Options& options) {
  const JobInfo& job = fabric.bootstrap().job();
  if (job.founders < job.size) {
    return Status(Code::kInvalidArgument,
                  "dunlin-consensus takes no part in a job that processes may join (dunlin-run "
                  "--max-ranks, --join)");
  }
  DUNLIN_ASSIGN(Output output, Output::open(options, fabric.rank() == Rank(0)));
  DUNLIN_ASSIGN(const auto communicator, collective::Communicator::create(fabric, {}));
  Setting setting{fabric, *communicator, options, output};
  auto outcome = options.command == Command::kDescent   ? run_descent(setting)
                 : options.command == Command::kPushSum ? run_averaging(setting)
                                                        : run_fish_school(setting);
  // The communicator may go when no rank needs it any more.
  if (outcome) DUNLIN_TRY(fabric.bootstrap().barrier("done", fabric.config().deadline));
  return outcome;
}

}  // namespace
}  // namespace dunlin::consensus

int main(int argc, char** argv) {
  using namespace dunlin;
  return run_program(argc, argv, consensus::parse_options, consensus::run);
}
