// dunlin-consensus: the decentralised algorithms of BlueFog (sections II and IV, appendix).
#include "apps/consensus/program/runs.h"
#include "apps/job.h"
#include "runtime/log.h"

namespace dunlin::consensus {
namespace {

int fail(const Status& status) {
  DUNLIN_ERROR("{}", status.to_string());
  const bool is_the_users =
      status.code() == Code::kInvalidArgument || status.code() == Code::kNotFound;
  return is_the_users ? 2 : 1;
}

Result<bool> run(Bootstrap& bootstrap, const Config& config, const Options& options) {
  const SteadyClock clock;
  DUNLIN_ASSIGN(const auto trace,
                Trace::open(config.trace_file, bootstrap.rank(), bootstrap.size(), clock));
  DUNLIN_ASSIGN(Output output, Output::open(options, bootstrap.rank() == Rank(0)));
  DUNLIN_ASSIGN(const auto fabric,
                transport::Fabric::create(bootstrap, config, clock, trace.get()));
  DUNLIN_ASSIGN(const auto communicator, collective::Communicator::create(*fabric, {}));
  Setting setting{*fabric, *communicator, options, output};
  auto outcome = options.command == Command::kDescent   ? run_descent(setting)
                 : options.command == Command::kPushSum ? run_averaging(setting)
                                                        : run_fish_school(setting);
  if (!outcome) return outcome;
  // The communicator goes when nobody needs it any more.
  DUNLIN_TRY(bootstrap.barrier("done", config.deadline));
  if (trace) DUNLIN_TRY(trace->write());
  return outcome;
}

int main(int argc, char** argv) {
  int exit_code = 0;
  const auto options = parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  return run_job(options->transport, {[&](Bootstrap& bootstrap, const Config& config) {
                                        return run(bootstrap, config, *options);
                                      },
                                      fail});
}

}  // namespace
}  // namespace dunlin::consensus

int main(int argc, char** argv) {
  return dunlin::consensus::main(argc, argv);
}
