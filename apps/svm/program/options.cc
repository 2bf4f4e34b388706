#include "apps/svm/program/options.h"

#include <charconv>
#include <cmath>

#include "apps/command_line/command_line.h"
#include "apps/output_options.h"
#include "runtime/units.h"

namespace dunlin::svm {
namespace {

constexpr const char* kDescription =
    "Trains a linear SVM by stochastic gradient descent, in one process or in the ranks of a job, "
    "which\n"
    "exchange their models along a node graph. Predicts with a trained model:\n"
    "  dunlin-svm --generate\n"
    "  dunlin-run -n 8 dunlin-svm --train rcv1.libsvm --graph root-expander --sync notify-ack";

// Beyond any data set. Catches negative numbers, which are parsed as huge ones.
constexpr std::uint64_t kMostRows = 1'000'000'000'000;

constexpr const char* kExitCodes =
    "Exit code: 0 done, 1 failed (a peer died or stalled, a file could not be read or written), 2 "
    "for a\n"
    "wrong command line or data that can't be read, 3 when --target-objective was not reached.";

Straggler parse_straggler(const std::string& text) {
  Straggler straggler;
  const auto colon = text.find(':');
  const char* const end = text.data() + text.size();
  const char* const middle = text.data() + std::min(colon, text.size());
  const auto rank = std::from_chars(text.data(), middle, straggler.rank);
  const auto factor = middle == end ? std::from_chars_result{end, std::errc::invalid_argument}
                                    : std::from_chars(middle + 1, end, straggler.factor);
  const bool is_read =
      rank.ec == std::errc{} && rank.ptr == middle && factor.ec == std::errc{} && factor.ptr == end;
  if (!is_read || straggler.rank < 0 || !(straggler.factor >= 1 && straggler.factor <= 1e6)) {
    throw CLI::ValidationError("--straggler",
                               "'" + text + "' is not RANK:FACTOR with a factor of 1 or more");
  }
  return straggler;
}

struct Texts {
  std::string shard_skew = "none";
  std::string straggler;
  std::string deadline = "adaptive";
};

void add_data(CLI::App& app, Options& options, Texts& texts) {
  auto* train =
      app.add_option("--train", options.train, "LIBSVM file to train on (plain, .xz or .gz)");
  app.add_option("--test", options.test, "LIBSVM file to test on, or to predict the labels of");
  app.add_flag("--generate", options.is_generated,
               "train on generated data, by default of RCV1's shape")
      ->excludes(train);
  app.add_option("--rows", options.generate.rows, "generated training rows")
      ->check(CLI::Range(std::uint64_t{1}, kMostRows))
      ->capture_default_str();
  app.add_option("--features", options.generate.features, "generated features")
      ->check(CLI::Range(std::uint32_t{1}, kMostFeatures))
      ->capture_default_str();
  app.add_option("--nonzeros", options.generate.nonzeros_per_row,
                 "generated values in a row, on average")
      ->capture_default_str();
  app.add_option("--flipped", options.generate.flipped, "share of wrong labels in generated data")
      ->capture_default_str();
  app.add_option("--test-rows", options.test_rows, "generated test rows")
      ->check(CLI::Range(std::uint64_t{1}, kMostRows))
      ->capture_default_str();
  app.add_option("--shard-skew", texts.shard_skew,
                 "how the workers' shares of the training rows differ: none: not, rows are dealt "
                 "in turns; label, feature: rows sorted by class or by strongest feature are cut "
                 "into one block for each worker; DEGREE: the share of the rows that is sorted, 0 "
                 "to 1 (1 if left out), while the others are dealt in turns")
      ->option_text("none|label[:DEGREE]|feature[:DEGREE]")
      ->capture_default_str();
}

void add_prediction(CLI::App& app, Options& options) {
  app.add_option("--predict", options.predict,
                 "do not train: predict the labels of --test with the model in this file, which "
                 "--model, dunlin-logreg or LIBLINEAR wrote")
      ->option_text("MODEL");
  app.add_option("--output", options.predicted, "write the predicted labels to this file")
      ->needs("--predict");
}

void add_learner(CLI::App& app, Options& options) {
  add_choice(app, "--loss", options.learner.loss,
             {{"hinge", Loss::kHinge}, {"squared-hinge", Loss::kSquaredHinge}, {"log", Loss::kLog}},
             "the loss function");
  app.add_option("--lambda", options.learner.lambda, "weight of the L2 regularizer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--eta0", options.learner.eta0,
                 "first learning rate (default: searched for on a sample)")
      ->check(CLI::PositiveNumber);
  app.add_flag(
      "--average", options.has_average,
      "report and save an average of each worker's models, which is nearer to the optimum than "
      "the last model");
  app.add_option("--epochs", options.epochs, "passes over the training set")
      ->check(CLI::Range(1e-6, 1e9))
      ->capture_default_str();
  app.add_option("--seed", options.learner.seed,
                 "seed of the order of the rows, and of generated data")
      ->capture_default_str();
}

void add_exchange(CLI::App& app, Options& options, Texts& texts) {
  app.add_option("--graph", options.graph,
                 "node graph: complete, ring, root-expander, ... (see dunlin-graph)")
      ->capture_default_str();
  add_choice(app, "--weights", options.weighting,
             {{"uniform", collective::Weighting::kUniform},
              {"metropolis", collective::Weighting::kMetropolis}},
             "how a worker weighs its own model and those of its in-neighbors");
  add_choice(app, "--sync", options.sync,
             {{"notify-ack", collective::SyncMode::kNotifyAck},
              {"bsp", collective::SyncMode::kBsp},
              {"async", collective::SyncMode::kAsync}},
             "the synchronization mode");
  app.add_option("--sync-every", options.sync_every, "examples of each worker between exchanges")
      ->check(CLI::Range(std::uint64_t{1}, kMostRows))
      ->capture_default_str();
  app.add_option("--depth", options.depth, "receive slots for each in-neighbor")
      ->check(CLI::Range(1U, 1024U))
      ->capture_default_str();
  app.add_option("--transport", options.transport,
                 "transports to use instead of those in DUNLIN_TRANSPORTS");
  app.add_option("--straggler", texts.straggler, "make a worker FACTOR times slower")
      ->option_text("RANK:FACTOR");
  app.add_option(
         "--deadline", texts.deadline,
         "TIME that an exchange may wait, such as 8s; adaptive: from the times of past exchanges")
      ->capture_default_str();
  add_choice(app, "--on-peer-loss", options.on_peer_loss,
             {{"fail", OnPeerLoss::kFail}, {"continue", OnPeerLoss::kContinue}},
             "when a worker dies: fail, or continue without it");
}

void add_output(CLI::App& app, Options& options) {
  app.add_option("--checkpoint", options.checkpoint,
                 "save checkpoints to FILE.RANK-of-RANKS.EXCHANGE");
  app.add_option("--checkpoint-every", options.checkpoint_every,
                 "exchanges between checkpoints (default: ten a run)");
  app.add_option("--resume", options.resume,
                 "continue, with any number of ranks, from the checkpoints that --checkpoint saved "
                 "under this name");
  app.add_option("--target-objective", options.target_objective,
                 "stop when the training objective is this low");
  app.add_option("--eval-every", options.eval_every,
                 "exchanges between evaluations (default: forty a run)");
  app.add_flag("--deferred-eval", options.is_deferred,
               "evaluate the models after the training, so that evaluations do not slow it down");
  app.add_option("--model", options.model,
                 "save the trained model to this file, in LIBLINEAR's format");
  add_output_options(app, options.output);
}

void check(Options& options, const Texts& texts) {
  for (const auto& [name, value] : {std::pair{"--epochs", options.epochs},
                                    {"--lambda", options.learner.lambda},
                                    {"--eta0", options.learner.eta0},
                                    {"--target-objective", options.target_objective.value_or(0)}}) {
    if (!std::isfinite(value)) throw CLI::ValidationError(name, "is not a finite number");
  }
  if (!options.predict.empty()) {
    if (options.test.empty()) throw CLI::RequiresError("--predict", "--test");
    if (!options.train.empty() || options.is_generated || !options.model.empty()) {
      throw CLI::ValidationError("--predict", "can't be combined with training");
    }
  } else if (!options.test.empty() && options.train.empty()) {
    throw CLI::RequiresError("--test", "--train or --predict");
  }
  if (options.train.empty()) options.is_generated = true;
  if (options.is_deferred && options.target_objective) {
    throw CLI::ValidationError("--deferred-eval", "can't be combined with --target-objective");
  }
  const auto skew = parse_shard_skew(texts.shard_skew);
  if (!skew) throw CLI::ValidationError("--shard-skew", std::string(skew.status().message()));
  options.shard_skew = *skew;
  if (!texts.straggler.empty()) options.straggler = parse_straggler(texts.straggler);
  if (texts.deadline != "adaptive") {
    const auto deadline = parse_duration(
        texts.deadline, {.low = Duration(1), .high = std::chrono::hours(24), .bare_unit = "s"});
    if (!deadline) {
      throw CLI::ValidationError("--deadline",
                                 std::string(deadline.status().message()) + "; or adaptive");
    }
    options.deadline_s = to_seconds(*deadline);
  }
  options.generate.seed = options.learner.seed;
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Options options;
  Texts texts;
  CLI::App app(kDescription, "dunlin-svm");
  app.footer(kExitCodes);
  add_data(app, options, texts);
  add_prediction(app, options);
  add_learner(app, options);
  add_exchange(app, options, texts);
  add_output(app, options);
  const auto check_all = [&] { check(options, texts); };
  if (!parse_command_line(app, argc, argv, check_all, exit_code)) return std::nullopt;
  return options;
}

}  // namespace dunlin::svm
