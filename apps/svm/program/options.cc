#include "apps/svm/program/options.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <map>

namespace dunlin::svm {
namespace {

constexpr const char* kDescription =
    "Trains a linear SVM by stochastic gradient descent, in one process or in the ranks of a job, "
    "that\n"
    "exchange their models along a node graph:\n"
    "  dunlin-svm --generate\n"
    "  dunlin-run -n 8 dunlin-svm --train rcv1.libsvm --graph root-expander --sync notify-ack";

// Beyond any data set; catches negative numbers, which are read as huge ones.
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
  std::string straggler;
  std::string deadline = "adaptive";
};

void add_data(CLI::App& app, Options& options) {
  auto* train = app.add_option("--train", options.train, "LIBSVM file to train on (plain or .xz)");
  app.add_option("--test", options.test, "LIBSVM file to test on")->needs(train);
  app.add_flag("--generate", options.is_generated,
               "train on generated data, by default of RCV1's shape")
      ->excludes(train);
  app.add_option("--rows", options.generate.rows, "generated training rows")
      ->check(CLI::Range(std::uint64_t{1}, kMostRows))
      ->capture_default_str();
  app.add_option("--features", options.generate.features, "generated features")
      ->capture_default_str();
  app.add_option("--nonzeros", options.generate.nonzeros_per_row,
                 "generated values in a row, on average")
      ->capture_default_str();
  app.add_option("--flipped", options.generate.flipped, "share of generated labels that are wrong")
      ->capture_default_str();
  app.add_option("--test-rows", options.test_rows, "generated test rows")
      ->check(CLI::Range(std::uint64_t{1}, kMostRows))
      ->capture_default_str();
}

void add_learner(CLI::App& app, Options& options) {
  const std::map<std::string, Loss> losses{
      {"hinge", Loss::kHinge}, {"squared-hinge", Loss::kSquaredHinge}, {"log", Loss::kLog}};
  app.add_option("--loss", options.learner.loss, "hinge, squared-hinge or log")
      ->transform(CLI::CheckedTransformer(losses))
      ->option_text("LOSS (hinge)");
  app.add_option("--lambda", options.learner.lambda, "weight of the L2 regulariser")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--eta0", options.learner.eta0,
                 "first learning rate (default: searched for on a sample)")
      ->check(CLI::PositiveNumber);
  app.add_option("--epochs", options.epochs, "passes over the training set")
      ->check(CLI::Range(1e-6, 1e9))
      ->capture_default_str();
  app.add_option("--seed", options.learner.seed, "of the order of the rows, and of generated data")
      ->capture_default_str();
}

void add_exchange(CLI::App& app, Options& options, Texts& texts) {
  const std::map<std::string, collective::SyncMode> modes{
      {"notify-ack", collective::SyncMode::kNotifyAck},
      {"bsp", collective::SyncMode::kBsp},
      {"async", collective::SyncMode::kAsync}};
  const std::map<std::string, collective::Weighting> weightings{
      {"uniform", collective::Weighting::kUniform},
      {"metropolis", collective::Weighting::kMetropolis}};
  app.add_option("--graph", options.graph,
                 "node graph: complete, ring, root-expander, ... (see dunlin-graph)")
      ->capture_default_str();
  app.add_option("--weights", options.weighting, "uniform or metropolis")
      ->transform(CLI::CheckedTransformer(weightings))
      ->option_text("WEIGHTS (uniform)");
  app.add_option("--sync", options.sync, "notify-ack, bsp or async")
      ->transform(CLI::CheckedTransformer(modes))
      ->option_text("MODE (notify-ack)");
  app.add_option("--sync-every", options.sync_every, "examples of each worker between exchanges")
      ->check(CLI::Range(std::uint64_t{1}, kMostRows))
      ->capture_default_str();
  app.add_option("--depth", options.depth, "receive slots per in-neighbour")
      ->check(CLI::Range(1U, 1024U))
      ->capture_default_str();
  app.add_option("--transport", options.transport,
                 "transport(s) to use instead of DUNLIN_TRANSPORTS");
  app.add_option("--straggler", texts.straggler, "make a worker FACTOR times slower")
      ->option_text("RANK:FACTOR");
  app.add_option(
         "--deadline", texts.deadline,
         "seconds that an exchange may wait, or 'adaptive': from the times of past exchanges")
      ->capture_default_str();
  const std::map<std::string, OnPeerLoss> losses{{"fail", OnPeerLoss::kFail},
                                                 {"continue", OnPeerLoss::kContinue}};
  app.add_option("--on-peer-loss", options.on_peer_loss,
                 "when a worker dies: fail, or continue without it")
      ->transform(CLI::CheckedTransformer(losses))
      ->option_text("fail|continue (fail)");
}

void add_output(CLI::App& app, Options& options) {
  app.add_option("--checkpoint", options.checkpoint,
                 "file to save to; each rank adds its number and the exchange's");
  app.add_option("--checkpoint-every", options.checkpoint_every,
                 "exchanges between checkpoints (default: ten a run)");
  app.add_option("--resume", options.resume,
                 "go on from the checkpoints that --checkpoint wrote under this name");
  app.add_option("--target-objective", options.target_objective,
                 "stop when the training objective is this low");
  app.add_option("--eval-every", options.eval_every,
                 "exchanges between evaluations (default: forty a run)");
  app.add_flag("--deferred-eval", options.is_deferred,
               "keep models and evaluate them after the training, which then isn't disturbed");
  app.add_option("--json-out", options.json_out,
                 "JSON lines of the progress go to this file ('-': standard output)");
  app.add_flag("--quiet", options.is_quiet, "no progress display");
}

void check(Options& options, const Texts& texts) {
  for (const auto& [name, value] : {std::pair{"--epochs", options.epochs},
                                    {"--lambda", options.learner.lambda},
                                    {"--eta0", options.learner.eta0},
                                    {"--target-objective", options.target_objective.value_or(0)}}) {
    if (!std::isfinite(value)) throw CLI::ValidationError(name, "is not a finite number");
  }
  if (options.train.empty()) options.is_generated = true;
  if (options.is_deferred && options.target_objective) {
    throw CLI::ValidationError("--deferred-eval", "can't be combined with --target-objective");
  }
  if (!texts.straggler.empty()) options.straggler = parse_straggler(texts.straggler);
  if (texts.deadline != "adaptive") {
    double seconds = 0;
    const char* const end = texts.deadline.data() + texts.deadline.size();
    const auto read = std::from_chars(texts.deadline.data(), end, seconds);
    if (read.ec != std::errc{} || read.ptr != end || !(seconds > 0 && seconds <= 86'400)) {
      throw CLI::ValidationError(
          "--deadline", "'" + texts.deadline + "' is neither 'adaptive' nor seconds up to 86400");
    }
    options.deadline_s = seconds;
  }
  options.generate.seed = options.learner.seed;
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Options options;
  Texts texts;
  CLI::App app(kDescription, "dunlin-svm");
  app.footer(kExitCodes);
  add_data(app, options);
  add_learner(app, options);
  add_exchange(app, options, texts);
  add_output(app, options);
  try {
    app.parse(argc, argv);
    check(options, texts);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? 0 : 2;
    return std::nullopt;
  }
  return options;
}

}  // namespace dunlin::svm
