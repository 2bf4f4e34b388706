#include "tools/dunlin-run/options.h"

#include <CLI/CLI.hpp>
#include <map>

namespace dunlin::run {
namespace {

constexpr const char* kDescription =
    "dunlin-run -n RANKS [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n\n"
    "Starts the ranks of a Dunlin job on this machine and ends them together.\n"
    "Two or more machines: run it once on each, with --size, --first-rank and --coordinator, and "
    "the\n"
    "same DUNLIN_JOB_SECRET or DUNLIN_JOB_SECRET_FILE in the environment.";

constexpr const char* kExitCodes =
    "Exit code: 128 + signal of the first rank that was killed, else that of the first rank that\n"
    "failed; 124 after --timeout, 128 + signal when dunlin-run itself was asked to end, 127 when\n"
    "the program cannot be started, 2 for a wrong command line. With --keep-going: that of the "
    "first rank that exited "
    "with\n"
    "another code than 0, else 0; ranks killed by a signal count only when no rank exits with 0.";

Duration seconds(double value) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
}

// What CLI11 cannot check by itself. Throws CLI::ValidationError.
void check(Options& options, const CLI::App& app, const std::string& coordinator) {
  if (app.count("--size") == 0) options.size = options.first_rank + options.ranks;
  if (options.first_rank + options.ranks > options.size) {
    throw CLI::ValidationError("--size", "is less than --first-rank plus --ranks");
  }
  if (!coordinator.empty()) {
    auto endpoint = bootstrap::Endpoint::parse(coordinator);
    if (!endpoint) {
      throw CLI::ValidationError("--coordinator", std::string(endpoint.status().message()));
    }
    options.coordinator = std::move(*endpoint);
  }
  if (!options.is_whole_job() && !options.coordinator) {
    throw CLI::ValidationError("--coordinator", "is needed when other machines take part");
  }
  options.command = app.remaining();
  if (!options.command.empty() && options.command.front() == "--") {
    options.command.erase(options.command.begin());
  } else if (!options.command.empty() && options.command.front().starts_with('-')) {
    throw CLI::ValidationError(options.command.front(), "is no option of dunlin-run");
  }
  if (options.command.empty()) throw CLI::ValidationError("PROGRAM", "is missing");
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Options options;
  std::string coordinator;
  double timeout = 0;
  double grace = 2;
  const std::map<std::string, Bind> binds{{"auto", Bind::kAuto},
                                          {"core", Bind::kCore},
                                          {"shared", Bind::kShared},
                                          {"none", Bind::kNone}};

  CLI::App app(kDescription, "dunlin-run");
  app.footer(kExitCodes);
  app.prefix_command();
  app.add_option("-n,--ranks", options.ranks, "ranks to start here")
      ->required()
      ->check(CLI::Range(1, 4096));
  app.add_option(
         "--bind", options.bind,
         "core: every rank gets its own whole cores; shared: the same, or, where ranks outnumber "
         "the host's cores, one core each in turns; none: the kernel decides; auto: core where "
         "there is a "
         "core per rank, else none")
      ->transform(CLI::CheckedTransformer(binds))
      ->option_text("auto|core|shared|none (auto)");
  app.add_flag("--tag-output,!--no-tag", options.is_tagged,
               "begin every line of output with \"[rank] \" (default); lines never mix");
  app.add_flag("--keep-going", options.keeps_going,
               "let the others go on when a rank fails, instead of ending them");
  app.add_option("--timeout", timeout, "seconds after which everything is ended")
      ->check(CLI::PositiveNumber);
  app.add_option("--grace", grace,
                 "seconds that the others have after a failure to report it and end by themselves; "
                 "then they get SIGTERM, and as much later SIGKILL")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--size", options.size, "ranks of the whole job, where other machines take part")
      ->check(CLI::Range(1, 65536));
  app.add_option("--first-rank", options.first_rank,
                 "number of the first rank started here; the machine with 0 runs the coordinator")
      ->check(CLI::Range(0, 65535));
  app.add_option("--coordinator", coordinator, "HOST:PORT of the coordinator, for all machines");
  try {
    app.parse(argc, argv);
    check(options, app, coordinator);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? 0 : 2;
    return std::nullopt;
  }
  options.timeout = seconds(timeout);
  options.grace = seconds(grace);
  return options;
}

}  // namespace dunlin::run
