#include "apps/logreg/program/options.h"

#include <cmath>

#include "apps/command_line/command_line.h"
#include "apps/output_options.h"
#include "collectives/schedule/algorithm.h"

namespace dunlin::logreg {
namespace {

constexpr const char* kDescription =
    "L2-regularized logistic regression by consensus ADMM, in one process or in the ranks of a "
    "job, "
    "which\n"
    "agree by all-reduce:\n"
    "  dunlin-logreg --generate --reference\n"
    "  dunlin-run -n 4 dunlin-logreg --train a9a.xz --algorithm 2d-tga --groups 2 --reference\n"
    "The objective is 1/2 |w|^2 + C sum log(1 + exp(-y w'x)), the same as that of LIBLINEAR's -s "
    "0.";

constexpr const char* kExitCodes =
    "An all-reduce waits DUNLIN_DEADLINE for the slowest rank.\n"
    "Exit code: 0 done, 1 failed (a peer died or stalled, a file could not be read or written), 2 "
    "for a\n"
    "wrong command line or data that can't be read, 3 when --target-error was not reached.";

// Beyond any data set. Catches negative numbers, which are parsed as huge ones.
constexpr std::uint64_t kMostRows = 1'000'000'000'000;
// Beyond these factors, doubles overflow before a solution is found.
constexpr double kLeastFactor = 1e-12;
constexpr double kMostFactor = 1e12;

void add_data(CLI::App& app, Options& options) {
  svm::GeneratorOptions& generate = options.generate;
  auto* train =
      app.add_option("--train", options.train, "LIBSVM file to train on (plain, .xz or .gz)");
  app.add_option("--test", options.test, "LIBSVM file to test on")->needs(train);
  app.add_flag("--generate", options.is_generated,
               "train on generated data, by default of RCV1's shape")
      ->excludes(train);
  app.add_option("--rows", generate.rows, "generated training rows")
      ->check(CLI::Range(std::uint64_t{1}, kMostRows))
      ->capture_default_str();
  app.add_option("--features", generate.features, "generated features")->capture_default_str();
  app.add_option("--nonzeros", generate.nonzeros_per_row, "generated values in a row, on average")
      ->capture_default_str();
  app.add_option("--flipped", generate.flipped, "share of generated labels that are wrong")
      ->capture_default_str();
  app.add_option("--test-rows", options.test_rows, "generated test rows")
      ->check(CLI::Range(std::uint64_t{1}, kMostRows))
      ->capture_default_str();
  app.add_option("--seed", generate.seed, "seed of generated data")->capture_default_str();
}

void add_problem(CLI::App& app, Options& options) {
  app.add_option("-C,--cost", options.cost, "weight C of the loss")
      ->check(CLI::Range(kLeastFactor, kMostFactor))
      ->capture_default_str();
  app.add_option("-B,--bias", options.bias,
                 "value of a constant feature that is added to every row; negative: none")
      ->check(CLI::Range(-1.0, kMostFactor))
      ->capture_default_str();
}

void add_solver(CLI::App& app, Options& options) {
  app.add_option("--rho", options.rho, "penalty of disagreement")
      ->check(CLI::Range(kLeastFactor, kMostFactor))
      ->capture_default_str();
  app.add_flag("--adaptive-rho", options.is_adaptive,
               "double or halve rho when one residual is more than ten times the other");
  app.add_option("--iterations", options.iterations, "iterations of ADMM, at most")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--absolute-tolerance", options.absolute_tolerance,
                 "stop when the residuals are below this per element, plus --relative-tolerance")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--relative-tolerance", options.relative_tolerance,
                 "share of the iterates that is added to --absolute-tolerance")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--tron-tolerance", options.tron_tolerance,
                 "an x-update ends when its gradient has fallen to this share")
      ->check(CLI::Range(1e-12, 0.9))
      ->capture_default_str();
  app.add_flag(
      "--reference", options.has_reference,
      "solve the whole problem on rank 0 first, and report the error relative to its minimum");
  app.add_option("--target-error", options.target_error,
                 "stop when the objective's relative error is this low, and not before (implies "
                 "--reference)")
      ->check(CLI::Range(1e-14, 1e6));
}

void add_exchange(CLI::App& app, Options& options) {
  app.add_option("--algorithm", options.algorithm,
                 "algorithm of the all-reduce: ring, hierarchical, torus-2d, 2d-tga, ... (see "
                 "dunlin-schedule), or auto")
      ->capture_default_str();
  app.add_option("--groups", options.groups,
                 "groups of neighboring ranks for hierarchical and 2d-tga; 0: the ranks of a host")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--transport", options.transport,
                 "transports to use instead of those in DUNLIN_TRANSPORTS");
}

void add_output(CLI::App& app, Options& options) {
  app.add_option("--model", options.model, "save the model to this file, in LIBLINEAR's format");
  add_output_options(app, options.output);
}

void check(Options& options) {
  for (const auto& [name, value] : {std::pair{"--cost", options.cost},
                                    {"--bias", options.bias},
                                    {"--rho", options.rho},
                                    {"--absolute-tolerance", options.absolute_tolerance},
                                    {"--relative-tolerance", options.relative_tolerance},
                                    {"--tron-tolerance", options.tron_tolerance},
                                    {"--target-error", options.target_error.value_or(1)}}) {
    if (!std::isfinite(value)) throw CLI::ValidationError(name, "is not a finite number");
  }
  if (options.train.empty()) options.is_generated = true;
  if (options.target_error) options.has_reference = true;
  if (options.algorithm == "auto") return;
  const auto found =
      collective::find_algorithm(collective::Collective::kAllReduce, options.algorithm);
  if (!found) throw CLI::ValidationError("--algorithm", std::string(found.status().message()));
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Options options;
  CLI::App app(kDescription, "dunlin-logreg");
  app.footer(kExitCodes);
  add_data(app, options);
  add_problem(app, options);
  add_solver(app, options);
  add_exchange(app, options);
  add_output(app, options);
  const auto check_all = [&] { check(options); };
  if (!parse_command_line(app, argc, argv, check_all, exit_code)) return std::nullopt;
  return options;
}

}  // namespace dunlin::logreg
