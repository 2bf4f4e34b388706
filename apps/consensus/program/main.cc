// dunlin-consensus: the decentralized algorithms of BlueFog (sections II and IV, appendix).
#include "apps/agreement.h"
#include "apps/consensus/program/runs.h"
#include "apps/job.h"

namespace dunlin::consensus {
namespace {

Terms terms_of(const ProblemOptions& problem) {
  Terms terms;
  terms.add("--problem", to_string(problem.kind))
      .add("--dimension", problem.dimension)
      .add("--rows", problem.rows)
      .add("--noise", problem.noise)
      .add("--spread", problem.spread)
      .add("--lambda", problem.lambda)
      .add("--seed", problem.seed);
  return terms;
}

Terms terms_of(const SchoolOptions& school) {
  Terms terms;
  terms.add("--behavior", to_string(school.behavior))
      .add("--fish-per-rank", school.fish_per_rank)
      .add("--sight", school.sight)
      .add("--ring", school.ring)
      .add("--safe", school.safe)
      .add("--speed", school.speed)
      .add("--predator-speed", school.predator_speed)
      .add("--noise", school.noise)
      .add("--learning-rate", school.learning_rate)
      .add("--time-step", school.time_step)
      .add("--seed", school.seed);
  return terms;
}

// How long a rank pauses in push-sum is its own affair.
Terms terms_of(const Options& options) {
  Terms terms;
  terms.add("command", name_of(options));
  switch (options.command) {
    case Command::kDescent:
      terms.add("--step", options.step)
          .add("--decay", options.decay)
          .add("--graph", options.graph)
          .add("--iterations", options.iterations)
          .add(terms_of(options.problem));
      break;
    case Command::kPushSum:
      terms.add("--graph", options.graph)
          .add("--rounds", options.iterations)
          .add("--dimension", options.push_sum.dimension)
          .add("--seed", options.push_sum.seed);
      break;
    case Command::kFishSchool:
      terms.add("--steps", options.iterations).add(terms_of(options.school));
      break;
  }
  terms.add("--record-every", options.record_every).add("--target-error", options.target_error);
  return terms;
}

Result<bool> run(transport::Fabric& fabric, const Options& options) {
  const JobInfo& job = fabric.bootstrap().job();
  if (job.founders < job.size) {
    return Status(Code::kInvalidArgument,
                  "dunlin-consensus takes no part in a job that processes may join (dunlin-run "
                  "--max-ranks, --join)");
  }
  DUNLIN_TRY(agree(fabric, "consensus/terms", fabric.bootstrap().membership().members,
                   terms_of(options), MemberDeath::kIsAnError, fabric.config().bootstrap_timeout));
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
