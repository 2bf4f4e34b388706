#include "apps/cnn/program/options.h"

#include <cmath>

#include "apps/command_line/command_line.h"
#include "apps/output_options.h"
#include "runtime/units.h"

namespace dunlin::cnn {
namespace {

constexpr const char* kDescription =
    "Trains a convolutional network for images of 10 classes or so, in one process or in the ranks "
    "of a job,\n"
    "each with a part of the images, whose models are combined by one of several methods:\n"
    "  dunlin-cnn --generate --model small\n"
    "  dunlin-run -n 4 dunlin-cnn --train cifar10.bin --model vgg-11 --method partial";

constexpr const char* kExitCodes =
    "A first Ctrl-C ends the training after the iteration, with what --checkpoint asks for. In a "
    "job that\n"
    "processes may join (dunlin-run --max-ranks), SIGTERM lets one worker leave, and the others "
    "go on.\n"
    "Exit code: 0 done, 1 failed (a peer died or stalled, the loss is no number, a file could not "
    "be written),\n"
    "2 for a wrong command line or data that can't be read, 3 when --target-loss was not reached.";

// Beyond any run. Catches negative numbers, which are parsed as huge ones.
constexpr std::uint64_t kMost = 1'000'000'000'000;
constexpr TimeLimits kTimes{.low = std::chrono::milliseconds(1), .bare_unit = "s"};

// Options that are given by name, and parsed when the command line is complete.
struct Names {
  std::string model = "small";
  std::string device = "cpu";
  std::string method = "all-reduce";
  std::string sync = "notify-ack";
  std::string groups = "smart";
  std::vector<std::string> slowdowns;
};

void add_data(CLI::App& app, Options& options) {
  GeneratorOptions& generate = options.generate;
  auto* train = app.add_option("--train", options.train,
                               "files to train on: CIFAR-10 binary, or IDX images and IDX labels "
                               "(plain, .xz or .gz; recognized by their content)")
                    ->take_all();
  app.add_option("--test", options.test, "files to test on")->take_all()->needs(train);
  app.add_flag("--generate", options.is_generated, "train on generated images (the default)")
      ->excludes(train);
  app.add_option("--images", generate.count, "generated training images")
      ->check(CLI::Range(std::uint64_t{1}, kMost))
      ->capture_default_str();
  app.add_option("--test-images", options.test_images, "generated test images")
      ->check(CLI::Range(std::uint64_t{1}, kMost))
      ->capture_default_str();
  app.add_option("--channels", generate.channels, "channels of generated images: 1 or 3")
      ->capture_default_str();
  app.add_option("--side", generate.side, "side of generated images, in pixels")
      ->capture_default_str();
  app.add_option("--classes", generate.classes, "classes of generated images")
      ->capture_default_str();
  app.add_option("--noise", generate.noise,
                 "deviation of the noise in generated images; values are 0 to 255")
      ->capture_default_str();
  app.add_flag("--augment", options.is_augmented,
               "move images by up to four pixels, and mirror half of them");
}

void add_network(CLI::App& app, Options& options, Names& names) {
  app.add_option("--model", names.model, "small, vgg-11, vgg-16 or resnet-20")
      ->capture_default_str();
  app.add_flag("--batch-norm", options.has_batch_norm,
               "normalize batches behind each convolution (resnet-20 always does)");
  app.add_option(
         "--device", names.device,
         "cpu, cuda or cuda:N: what workers compute on; with cuda, the ranks of a host take "
         "its GPUs in turn")
      ->capture_default_str();
  app.add_option("--threads", options.threads,
                 "threads of LibTorch in each rank; 0: each rank's share of the processors")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
}

void add_training(CLI::App& app, Options& options) {
  app.add_option("--epochs", options.epochs, "passes over all images, by all workers together")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--iterations", options.iterations,
                 "iterations of each worker, in place of --epochs")
      ->check(CLI::Range(std::uint64_t{1}, kMost));
  app.add_option("--duration", options.duration_s, "end after this TIME of training")
      ->transform(CLI::Validator(time_option(kTimes), ""))
      ->type_name("TIME");
  app.add_option("--batch-size", options.batch_size, "images of a worker's iteration")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 20))
      ->capture_default_str();
  app.add_option("--learning-rate", options.learning_rate)
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--decay", options.decay, "factor on the learning rate")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--decay-every", options.decay_every, "epochs between two applications of --decay")
      ->check(CLI::Range(1e-6, 1e6))
      ->capture_default_str();
  app.add_option("--momentum", options.method.sgd.momentum)
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--weight-decay", options.method.sgd.weight_decay)
      ->check(CLI::Range(0.0, 1e3))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "seed of initial parameters, orders and generated images")
      ->capture_default_str();
  app.add_option("--target-loss", options.target_loss,
                 "end when rank 0's training loss (mean of its last 50 batches) is this low; if "
                 "workers end one by one, each goes by its own loss")
      ->check(CLI::Range(0.0, 1e6));
}

void add_method(CLI::App& app, Options& options, Names& names) {
  training::MethodOptions& method = options.method;
  app.add_option("--method", names.method,
                 "all-reduce, straggler-ring, parameter-server, async-parameter-server, ad-psgd, "
                 "local-sgd, stochastic or partial")
      ->capture_default_str();
  app.add_option("--servers", method.servers,
                 "the number of parameter servers, which are the last ranks of the job")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--section-length", method.section_length,
                 "iterations between two averages, of local-sgd and partial")
      ->check(CLI::Range(std::uint64_t{1}, kMost))
      ->capture_default_str();
  app.add_option("--algorithm", method.algorithm,
                 "algorithm of all-reduce and local-sgd (see dunlin-schedule)");
  app.add_option("--graph", method.graph, "graph of stochastic and ad-psgd (see dunlin-graph)")
      ->capture_default_str();
  app.add_option("--sync", names.sync, "with stochastic: notify-ack, bsp or async")
      ->capture_default_str();
  app.add_option("--depth", method.depth, "with stochastic: receive slots for each neighbor")
      ->check(CLI::Range(1U, 1024U))
      ->capture_default_str();
  app.add_option("--groups", names.groups, "with partial: static, random, buffered or smart")
      ->capture_default_str();
  app.add_option("--group-size", method.generator.group_size, "with partial: ranks in a group")
      ->check(CLI::Range(2, 1'000'000))
      ->capture_default_str();
  app.add_option(
         "--slowdown-threshold", method.generator.slowdown_threshold,
         "with partial and smart groups: iterations that a worker may be ahead of its group")
      ->check(CLI::Range(std::uint64_t{1}, kMost))
      ->capture_default_str();
  app.add_option(
         "--slowdown", names.slowdowns,
         "WORKER:FACTOR or random:FACTOR: sleep FACTOR times as long as the worker computed")
      ->take_all();
  app.add_option("--transport", options.transport,
                 "transports to use instead of those in DUNLIN_TRANSPORTS");
  add_choice(app, "--on-peer-loss", options.on_peer_loss,
             {{"fail", OnPeerLoss::kFail}, {"continue", OnPeerLoss::kContinue}},
             "when a worker dies: fail, or continue without it (stochastic, local-sgd; some other "
             "methods always do)");
  app.add_option(
         "--deadline", options.deadline_s,
         "longest TIME to wait for other ranks; default: many times what an iteration takes")
      ->transform(CLI::Validator(time_option(kTimes), ""))
      ->type_name("TIME");
}

void add_output(CLI::App& app, Options& options) {
  app.add_option("--checkpoint", options.checkpoint,
                 "save the workers' states to FILE.RANK-of-WORKERS.ITERATION");
  app.add_option(
         "--checkpoint-every", options.checkpoint_every,
         "iterations between checkpoints (default: about a tenth of the run); with local-sgd a "
         "multiple of --section-length, with partial and static groups of eight times that")
      ->check(CLI::Range(std::uint64_t{1}, kMost));
  app.add_option(
      "--resume", options.resume,
      "continue, with any number of workers, from the checkpoints that --checkpoint saved "
      "under this name");
  app.add_option("--report-every", options.report_every,
                 "iterations between reports (default: about a fortieth of the run)")
      ->check(CLI::Range(std::uint64_t{1}, kMost));
  app.add_option(
         "--evaluate-every", options.evaluate_every,
         "iterations between tests of rank 0's model, for which other ranks may wait (default: "
         "a test at the end only)")
      ->check(CLI::Range(std::uint64_t{1}, kMost));
  add_output_options(app, options.output);
}

template <typename T>
T valid(const char* option, Result<T> parsed) {
  if (!parsed) throw CLI::ValidationError(option, std::string(parsed.status().message()));
  return std::move(parsed).value();
}

void complete(Options& options, const Names& names) {
  for (const auto& [name, value] :
       {std::pair{"--epochs", options.epochs},
        {"--learning-rate", options.learning_rate},
        {"--decay", options.decay},
        {"--decay-every", options.decay_every},
        {"--momentum", static_cast<double>(options.method.sgd.momentum)},
        {"--weight-decay", static_cast<double>(options.method.sgd.weight_decay)},
        {"--target-loss", options.target_loss.value_or(1)}}) {
    if (!std::isfinite(value)) throw CLI::ValidationError(name, "is not a finite number");
  }
  training::MethodOptions& method = options.method;
  options.model = valid("--model", parse_network(names.model));
  options.device = valid("--device", parse_device(names.device));
  method.kind = valid("--method", training::parse_method(names.method));
  method.sync = valid("--sync", collective::parse_sync_mode(names.sync));
  method.groups = valid("--groups", collective::parse_group_source(names.groups));
  for (const std::string& rule : names.slowdowns) {
    options.slowdowns.push_back(valid("--slowdown", training::parse_slowdown(rule)));
  }
  if (options.train.empty()) options.is_generated = true;
  options.generate.seed = method.seed = method.generator.seed = options.seed;
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Options options;
  Names names;
  CLI::App app(kDescription, "dunlin-cnn");
  app.footer(kExitCodes);
  // The last value of an option that is given twice counts.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_data(app, options);
  add_network(app, options, names);
  add_training(app, options);
  add_method(app, options, names);
  add_output(app, options);
  const auto finish = [&] { complete(options, names); };
  if (!parse_command_line(app, argc, argv, finish, exit_code)) return std::nullopt;
  return options;
}

}  // namespace dunlin::cnn
