// dunlin-logreg's consensus ADMM with MPI_Allreduce in place of Dunlin's all-reduce, for
// bench/peers/admm. It has the same parts of apps/logreg, and the same options, iteration, times
// and JSON lines (apps/logreg/program/trainer.h).
//
// mpirun -n N admm --train FILE|--generate [options of dunlin-logreg]
//
// Options that have no meaning here, or that the comparison does not need (--algorithm, --groups,
// --transport, --test, --model), are refused. The exit codes are those of dunlin-logreg. A rank
// that fails ends the others.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "apps/job.h"
#include "apps/logreg/admm.h"
#include "apps/logreg/program/data.h"
#include "apps/logreg/program/options.h"
#include "apps/logreg/program/output.h"
#include "runtime/clock.h"

namespace dunlin::logreg {
namespace {

// As in dunlin-logreg.
constexpr double kReferenceTolerance = 1e-10;

// In place, on all ranks of MPI_COMM_WORLD. If it fails, MPI ends the job itself.
void all_reduce(std::span<double> values, MPI_Op op) {
  MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, op,
                MPI_COMM_WORLD);
}

Status check(const Options& options) {
  const Options defaults;
  for (const auto& [name, is_given] :
       {std::pair{"--algorithm", options.algorithm != defaults.algorithm},
        {"--groups", options.groups != defaults.groups},
        {"--transport", !options.transport.empty()},
        {"--test", !options.test.empty()},
        {"--model", !options.model.empty()}}) {
    if (is_given) {
      return {Code::kInvalidArgument, fmt::format("{} is not for the peer over MPI", name)};
    }
  }
  return Status::ok();
}

// The first line of the library's description of itself.
std::string library_name() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string name(text, static_cast<std::size_t>(length));
  name = name.substr(0, name.find_first_of("\n,"));
  std::ranges::replace(name, '\t', ' ');
  return name;
}

// A whole run on one rank. Owner thread only. `options` and `output` must outlive it.
class MpiTrainer {
 public:
  MpiTrainer(int rank, int size, const Options& options, Output& output)
      : rank_(rank), size_(size), options_(options), output_(output) {}

  // Collective. Returns false if --target-error was not reached.
  Result<bool> run();

 private:
  Status start();
  Status find_reference();
  Status iterate();
  Status judge(Duration compute, Duration sync);
  bool is_at_target() const { return *moment_.relative_error <= *options_.target_error; }
  bool is_done() const;
  Status finish();

  int rank_;
  int size_;
  const Options& options_;
  Output& output_;
  SteadyClock clock_;

  svm::Dataset data_;  // this rank's rows
  std::optional<Design> design_;
  std::optional<double> optimum_;
  std::optional<ConsensusAdmm> admm_;
  Vector message_;
  Moment moment_;
  Times sum_;
};

Result<bool> MpiTrainer::run() {
  DUNLIN_TRY(check(options_));
  DUNLIN_TRY(start());
  if (options_.has_reference) DUNLIN_TRY(find_reference());
  do {
    DUNLIN_TRY(iterate());
  } while (!is_done());
  DUNLIN_TRY(finish());
  return !options_.target_error || is_at_target();
}

Status MpiTrainer::start() {
  const svm::Shard shard{static_cast<std::uint32_t>(rank_), static_cast<std::uint32_t>(size_)};
  DUNLIN_ASSIGN(data_, load_training(options_, shard));
  design_.emplace(data_, options_.bias);
  message_.resize(design_->columns());
  admm_.emplace(*design_, AdmmOptions{.ranks = size_,
                                      .cost = options_.cost,
                                      .rho = options_.rho,
                                      .is_adaptive = options_.is_adaptive,
                                      .tron_tolerance = options_.tron_tolerance});
  DUNLIN_TRY(
      output_.event("config", {{"ranks", size_},
                               {"data", options_.is_generated ? "generated" : options_.train},
                               {"rows", data_.total_rows},
                               {"features", data_.features},
                               {"cost", options_.cost},
                               {"bias", options_.bias},
                               {"rho", options_.rho},
                               {"adaptive_rho", options_.is_adaptive},
                               {"tron_tolerance", options_.tron_tolerance},
                               {"iterations", options_.iterations},
                               {"algorithm", "MPI_Allreduce"},
                               {"library", library_name()}}));
  DUNLIN_TRY(output_.say(fmt::format("{} rows, {} features, {} ranks, MPI_Allreduce of {}",
                                     data_.total_rows, data_.features, size_, library_name())));
  // Connections are made before anything is timed, as in dunlin-logreg.
  all_reduce(message_, MPI_SUM);
  MPI_Barrier(MPI_COMM_WORLD);
  return Status::ok();
}

Status MpiTrainer::find_reference() {
  double optimum = 0;
  if (rank_ == 0) {
    DUNLIN_ASSIGN(const svm::Dataset whole, load_training(options_, {}));
    const TimePoint begin = clock_.now();
    DUNLIN_ASSIGN(const Reference reference,
                  solve_whole(Design(whole, options_.bias), options_.cost, kReferenceTolerance));
    optimum = reference.report.value;
    DUNLIN_TRY(output_.event(
        "reference", {{"objective", optimum}, {"time_s", to_seconds(clock_.now() - begin)}}));
  }
  MPI_Bcast(&optimum, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  optimum_ = optimum;
  MPI_Barrier(MPI_COMM_WORLD);
  return Status::ok();
}

Status MpiTrainer::iterate() {
  moment_.iteration += 1;
  moment_.rho = admm_->rho();
  const TimePoint begin = clock_.now();
  moment_.tron = admm_->update_x(message_);
  const TimePoint is_ready = clock_.now();
  if (moment_.tron.end == TronEnd::kNotFinite) {
    return {Code::kOutOfRange,
            fmt::format("iteration {}: the new x is not finite", moment_.iteration)};
  }
  all_reduce(message_, MPI_SUM);
  const TimePoint is_reduced = clock_.now();
  admm_->update_z(message_);
  return judge(clock_.now() - is_reduced + (is_ready - begin), is_reduced - is_ready);
}

// The times of the iteration leave out what only serves the output.
Status MpiTrainer::judge(Duration compute, Duration sync) {
  std::array seconds{to_seconds(compute), to_seconds(sync), -to_seconds(sync),
                     to_seconds(compute + sync)};
  all_reduce(seconds, MPI_MAX);
  moment_.times = {seconds[0], seconds[1], -seconds[2], seconds[3]};
  ConsensusAdmm::Addends sums = admm_->addends();
  all_reduce(sums, MPI_SUM);
  moment_.time_s += moment_.times.elapsed;
  moment_.objective = admm_->objective(sums);
  moment_.residuals =
      admm_->residuals(sums, options_.absolute_tolerance, options_.relative_tolerance);
  if (optimum_) moment_.relative_error = std::abs(moment_.objective - *optimum_) / *optimum_;
  if (!std::isfinite(moment_.objective)) {
    return {Code::kOutOfRange,
            fmt::format("iteration {}: the objective is not finite", moment_.iteration)};
  }
  sum_.compute += moment_.times.compute;
  sum_.sync += moment_.times.sync;
  sum_.sync_least += moment_.times.sync_least;
  admm_->adapt(moment_.residuals);
  DUNLIN_TRY(output_.progress(moment_, is_done()));
  MPI_Barrier(MPI_COMM_WORLD);
  return Status::ok();
}

bool MpiTrainer::is_done() const {
  if (moment_.iteration == options_.iterations) return true;
  return options_.target_error ? is_at_target() : moment_.residuals.are_small();
}

Status MpiTrainer::finish() {
  DUNLIN_TRY(output_.event("final", {{"iterations", moment_.iteration},
                                     {"objective", moment_.objective},
                                     {"relative_error", optional(moment_.relative_error)},
                                     {"time_s", moment_.time_s},
                                     {"compute_s", sum_.compute},
                                     {"sync_s", sum_.sync},
                                     {"sync_least_s", sum_.sync_least}}));
  return output_.say(
      fmt::format("{} iterations: objective {:.12g}; compute {:.4f} s, sync {:.4f} s (of the last "
                  "rank to come {:.4f} s)",
                  moment_.iteration, moment_.objective, sum_.compute, sum_.sync, sum_.sync_least));
}

Result<bool> run(int rank, int size, const Options& options) {
  DUNLIN_ASSIGN(Output output, Output::open(options, rank == 0));
  return MpiTrainer(rank, size, options, output).run();
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int exit_code = 0;
  if (const auto options = parse_options(argc, argv, exit_code)) {
    const auto outcome = run(rank, size, *options);
    exit_code = !outcome ? fail(outcome.status()) : *outcome ? 0 : 3;
    // The others may be waiting for this rank.
    if (!outcome) MPI_Abort(MPI_COMM_WORLD, exit_code);
  }
  MPI_Finalize();
  return exit_code;
}

}  // namespace
}  // namespace dunlin::logreg

int main(int argc, char** argv) {
  return dunlin::logreg::main(argc, argv);
}
