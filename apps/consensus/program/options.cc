#include "apps/consensus/program/options.h"

#include <fmt/format.h>

#include "apps/command_line/command_line.h"
#include "apps/output_options.h"
#include "runtime/units.h"

namespace dunlin::consensus {
namespace {

constexpr const char* kDescription =
    "Runs a decentralized algorithm in the ranks of a job, each of which sends to its neighbors "
    "only:\n"
    "  dunlin-run -n 8 dunlin-consensus exact-diffusion --graph torus\n"
    "  dunlin-run -n 8 dunlin-consensus push-sum --graph exponential\n"
    "  dunlin-run -n 8 dunlin-consensus fish-school --behavior disperse";

constexpr const char* kExitCodes =
    "COMMAND --help lists the options of a command.\n"
    "Exit code: 0 done, 1 failed (a peer died or stalled, a file could not be written, mass was "
    "lost), 2 for\n"
    "a wrong command line, 3 when the run diverged or --target-error was not reached.";

// Catches negative numbers, which are parsed as huge ones, and sizes that no memory would hold.
constexpr std::uint64_t kMostIterations = 10'000'000;
// The eigenvalues of the optimum take time with the cube of it: about a second here.
constexpr std::size_t kMostDimensions = 300;
constexpr std::size_t kMostRows = 1'000'000;

struct MethodText {
  Method method;
  const char* help;
  double step;  // the default: converges on every graph of 2 to 8 ranks
  const char* graph;
};
constexpr MethodText kMethods[] = {
    {Method::kDgd, "decentralized gradient descent: to a neighborhood of the optimum", 0.2,
     "bidirectional-ring"},
    {Method::kExactDiffusion, "gradient descent with its bias corrected: to the optimum", 0.5,
     "bidirectional-ring"},
    {Method::kGradientTracking, "neighbors average gradients as well: to the optimum", 0.2,
     "bidirectional-ring"},
    {Method::kPushDiging, "gradient tracking with push-sum, over directed graphs that may change",
     0.1, "one-peer-exponential"},
};

void add_output(CLI::App& app, Options& options) {
  app.add_option("--transport", options.transport,
                 "transports to use instead of those in DUNLIN_TRANSPORTS");
  add_output_options(app, options.output);
}

void add_recording(CLI::App& app, Options& options, const char* what) {
  app.add_option("--record-every", options.record_every, what)
      ->check(CLI::Range(std::uint64_t{1}, kMostIterations))
      ->capture_default_str();
  app.add_option("--target-error", options.target_error,
                 "relative error that every rank has to reach (exit code 3 otherwise)")
      ->check(CLI::PositiveNumber);
}

void add_method(CLI::App& app, Options& options, const MethodText& text) {
  auto* command = app.add_subcommand(to_string(text.method), text.help);
  // Sets the options that the commands share when this command is the chosen one.
  command->preparse_callback([&options, &text](std::size_t) {
    options.command = Command::kDescent;
    options.method = text.method;
    options.step = text.step;
    options.graph = text.graph;
    options.iterations = 1000;
  });
  command
      ->add_option("--graph", options.graph,
                   "node graph (see dunlin-graph), one-peer-exponential, or one-peer:GRAPH")
      ->option_text(std::string("GRAPH (") + text.graph + ")");
  command->add_option("--iterations", options.iterations, "iterations of every rank")
      ->check(CLI::Range(std::uint64_t{1}, kMostIterations))
      ->option_text("N (1000)");
  command
      ->add_option("--step", options.step,
                   "step, as a multiple of 1 / L; L: the largest curvature of any rank's function")
      ->check(CLI::PositiveNumber)
      ->option_text(fmt::format("FACTOR ({})", text.step));
  if (text.method == Method::kDgd) {
    command->add_option("--decay", options.decay, "iteration k's step is divided by k^DECAY")
        ->check(CLI::Range(0.0, 1.0))
        ->option_text("DECAY (0)");
  }
  add_choice(*command, "--problem", options.problem.kind,
             {{"least-squares", ProblemKind::kLeastSquares}, {"logistic", ProblemKind::kLogistic}},
             "the problem to solve");
  command->add_option("--dimension", options.problem.dimension, "unknowns")
      ->check(CLI::Range(std::size_t{1}, kMostDimensions))
      ->capture_default_str();
  command->add_option("--rows", options.problem.rows, "rows of data on every rank")
      ->check(CLI::Range(std::size_t{1}, kMostRows))
      ->capture_default_str();
  command->add_option("--noise", options.problem.noise, "deviation of the targets of least squares")
      ->capture_default_str();
  command
      ->add_option("--spread", options.problem.spread,
                   "how far apart the ranks' own solutions lie, per coordinate")
      ->capture_default_str();
  command->add_option("--lambda", options.problem.lambda, "weight of logistic regression's L2 term")
      ->capture_default_str();
  command->add_option("--seed", options.problem.seed, "seed of the data")->capture_default_str();
  add_recording(*command, options, "iterations between records");
  add_output(*command, options);
}

void add_push_sum(CLI::App& app, Options& options, double& longest_pause_us) {
  auto* command = app.add_subcommand(
      "push-sum",
      "the average of all ranks' vectors, over any graph, without any rank waiting for another");
  command->preparse_callback([&options](std::size_t) {
    options.command = Command::kPushSum;
    options.graph = "exponential";
    options.iterations = options.push_sum.rounds;
  });
  command->add_option("--graph", options.graph, "node graph (see dunlin-graph)")
      ->option_text("GRAPH (exponential)");
  command->add_option("--rounds", options.iterations, "rounds of every rank, at least")
      ->check(CLI::Range(std::uint64_t{1}, kMostIterations))
      ->option_text(fmt::format("N ({})", options.push_sum.rounds));
  command
      ->add_option("--pause", longest_pause_us,
                   "longest pause between a rank's rounds, such as 200us; each is drawn")
      ->transform(
          CLI::Validator(time_option({.high = std::chrono::seconds(1), .bare_unit = "us"}), ""))
      ->type_name("TIME")
      ->default_str("200us");
  command->add_option("--dimension", options.push_sum.dimension, "elements of the vectors")
      ->check(CLI::Range(std::size_t{1}, kMostRows))
      ->capture_default_str();
  command->add_option("--seed", options.push_sum.seed, "seed of the vectors and the pauses")
      ->capture_default_str();
  add_recording(*command, options, "rounds between records");
  add_output(*command, options);
}

void add_fish_school(CLI::App& app, Options& options) {
  auto* command = app.add_subcommand(
      "fish-school", "fish that estimate where a predator is, and disperse or encircle it");
  SchoolOptions& school = options.school;
  command->preparse_callback([&options](std::size_t) {
    options.command = Command::kFishSchool;
    options.iterations = 400;
    options.record_every = 4;
  });
  add_choice(*command, "--behavior", school.behavior,
             {{"disperse", Behavior::kDisperse}, {"encircle", Behavior::kEncircle}},
             "what the fish do about the predator");
  command->add_option("--fish-per-rank", school.fish_per_rank, "fish of every rank")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--steps", options.iterations, "time steps")
      ->check(CLI::Range(std::uint64_t{1}, kMostIterations))
      ->option_text("N (400)");
  command->add_option("--sight", school.sight, "fish this near are neighbors (m)")
      ->capture_default_str();
  command->add_option("--ring", school.ring, "distance at which to encircle the predator (m)")
      ->capture_default_str();
  command
      ->add_option("--safe", school.safe, "distance from the predator at which fish are safe (m)")
      ->capture_default_str();
  command->add_option("--speed", school.speed, "largest speed of a fish (m/s)")
      ->capture_default_str();
  command
      ->add_option("--predator-speed", school.predator_speed,
                   "speed of the predator, on a circle (m/s)")
      ->capture_default_str();
  command
      ->add_option(
          "--noise", school.noise,
          "deviation of the fish's measurements: of angles in radians, of distances relative")
      ->capture_default_str();
  command->add_option("--learning-rate", school.learning_rate, "learning rate of the estimates")
      ->capture_default_str();
  command->add_option("--time-step", school.time_step, "simulated TIME of a step")
      ->transform(CLI::Validator(time_option({.bare_unit = "s"}), ""))
      ->type_name("TIME")
      ->default_str(exact_time(Duration(std::llround(school.time_step * 1e9))));
  command->add_option("--seed", school.seed, "seed of the school")->capture_default_str();
  command->add_option("--record-every", options.record_every, "steps between records")
      ->check(CLI::Range(std::uint64_t{1}, kMostIterations))
      ->option_text("N (4)");
  add_output(*command, options);
}

}  // namespace

std::string name_of(const Options& options) {
  switch (options.command) {
    case Command::kDescent:
      return to_string(options.method);
    case Command::kPushSum:
      return "push-sum";
    case Command::kFishSchool:
      return "fish-school";
  }
  return "?";
}

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Options options;
  double longest_pause_us = 200;
  CLI::App app(kDescription, "dunlin-consensus");
  app.footer(kExitCodes);
  app.require_subcommand(0, 1);
  for (const MethodText& text : kMethods) add_method(app, options, text);
  add_push_sum(app, options, longest_pause_us);
  add_fish_school(app, options);
  const auto check = [&] {
    if (app.get_subcommands().empty()) throw CLI::RequiredError("A command");
  };
  if (!parse_command_line(app, argc, argv, check, exit_code)) return std::nullopt;
  options.push_sum.rounds = options.iterations;
  options.push_sum.record_every = options.record_every;
  options.push_sum.longest_pause = Duration(static_cast<Duration::rep>(longest_pause_us * 1000));
  return options;
}

}  // namespace dunlin::consensus
