#include "tools/dunlin-run/options.h"

#include "apps/command_line/command_line.h"
#include "runtime/units.h"

namespace dunlin::run {
namespace {

constexpr const char* kDescription =
    "dunlin-run -n RANKS [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n\n"
    "Starts the ranks of a Dunlin job on this host and ends them together. With several hosts, run "
    "it once on each, with --size, --first-rank and --coordinator, and with the same "
    "DUNLIN_JOB_SECRET or DUNLIN_JOB_SECRET_FILE in the environment.\n"
    "A job with --max-ranks and --job-file can grow while it runs: dunlin-run --join FILE -n RANKS "
    "starts processes that join it, with the same program and arguments. The program has to be one "
    "that takes them in, such as dunlin-svm.";

constexpr const char* kExitCodes =
    "Lines of output begin with \"[rank] \". A line of standard output that holds a JSON object, "
    "from \"{\" to \"}\", is passed on as it is, so that programs can read it.\n"
    "Exit code: 128 + signal of the first rank that was killed, otherwise the exit code of the "
    "first rank that failed; 124 after --timeout; 128 + signal when a signal ended dunlin-run "
    "itself; 127 when the program cannot be started; 2 for a wrong command line. With "
    "--keep-going: the exit code of the first rank that exited with another code than 0, otherwise "
    "0; ranks killed by a signal count only when no rank exits with 0.";

Duration seconds(double value) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
}

// Checks options against each other. Throws a CLI::ValidationError.
void check(Options& options, const CLI::App& app, const std::string& coordinator) {
  if (options.is_joining()) {
    for (const char* const other :
         {"--size", "--first-rank", "--coordinator", "--max-ranks", "--job-file", "--report"}) {
      if (app.count(other) > 0)
        throw CLI::ValidationError(other, "does not go with --join: the running job has it");
    }
  }
  if (app.count("--size") == 0) options.size = options.first_rank + options.ranks;
  if (options.first_rank + options.ranks > options.size) {
    throw CLI::ValidationError("--size", "is less than --first-rank plus --ranks");
  }
  if (app.count("--max-ranks") == 0) options.max_ranks = options.size;
  if (options.max_ranks < options.size) {
    throw CLI::ValidationError("--max-ranks", "is less than the number of ranks at the start");
  }
  if (!options.job_file.empty() && !options.may_grow()) {
    throw CLI::ValidationError("--job-file", "needs a --max-ranks above the ranks at the start");
  }
  if (!options.job_file.empty() && !options.hosts_coordinator()) {
    throw CLI::ValidationError("--job-file", "is for the dunlin-run that starts rank 0");
  }
  if (!coordinator.empty()) {
    auto endpoint = bootstrap::Endpoint::parse(coordinator);
    if (!endpoint) {
      throw CLI::ValidationError("--coordinator", std::string(endpoint.status().message()));
    }
    options.coordinator = std::move(*endpoint);
  }
  if (!options.is_whole_job() && !options.coordinator) {
    throw CLI::ValidationError("--coordinator", "is needed when other hosts take part");
  }
  options.command = app.remaining();
  if (!options.command.empty() && options.command.front() == "--") {
    options.command.erase(options.command.begin());
  } else if (!options.command.empty() && options.command.front().starts_with('-')) {
    throw CLI::ValidationError(options.command.front(), "is not an option of dunlin-run");
  }
  if (options.command.empty()) throw CLI::ValidationError("PROGRAM", "is missing");
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Options options;
  std::string coordinator;
  double timeout = 0;
  double grace = 2;
  bool has_tags = true;

  CLI::App app(kDescription, "dunlin-run");
  app.footer(kExitCodes);
  app.prefix_command();
  app.add_option("-n,--ranks", options.ranks, "number of ranks to start on this host")
      ->required()
      ->check(CLI::Range(1, 4096));
  add_choice(app, "--bind", options.bind,
             {{"auto", Bind::kAuto},
              {"core", Bind::kCore},
              {"shared", Bind::kShared},
              {"none", Bind::kNone}},
             "core: every rank gets whole cores of its own; shared: the same, or, when ranks "
             "outnumber the cores of the host, one core each in turns; none: the kernel decides; "
             "auto: core when there is a core per rank, otherwise none. Cores that another job of "
             "this user has bound its ranks to are left out");
  app.add_flag("--tag-output,!--no-tag", has_tags,
               "whether lines of output begin with \"[rank] \"; by default all do but those of "
               "JSON. Lines of different ranks never mix");
  app.add_flag("--keep-going", options.keeps_going,
               "let the other ranks continue when one fails, instead of ending them");
  app.add_flag("--report", options.reports,
               "say at the end which ranks of this host held up the others, and how long they were "
               "waited for. With several hosts, DUNLIN_JOB_ID has to be set on all of them");
  app.add_option("--timeout", timeout, "end all ranks after this time; default: never")
      ->transform(
          CLI::Validator(time_option({.low = std::chrono::milliseconds(1), .bare_unit = "s"}), ""))
      ->type_name("TIME");
  app.add_option("--grace", grace,
                 "time that the other ranks have after a failure to report it and exit; then they "
                 "get SIGTERM, and SIGKILL after the same time again")
      ->transform(CLI::Validator(time_option({.bare_unit = "s"}), ""))
      ->type_name("TIME")
      ->default_str("2s");
  app.add_option("--size", options.size, "ranks of the whole job, when other hosts take part")
      ->check(CLI::Range(1, 65536));
  app.add_option("--first-rank", options.first_rank,
                 "number of the first rank started here; the host of rank 0 runs the coordinator")
      ->check(CLI::Range(0, 65535));
  app.add_option("--coordinator", coordinator, "address of the coordinator, the same on all hosts")
      ->type_name("HOST:PORT");
  app.add_option("--max-ranks", options.max_ranks,
                 "how many ranks may ever take part, the same on all hosts: those that start the "
                 "job, and processes that join it later. Each of these gets a rank of its own, and "
                 "the rank of one that has ended is not given again")
      ->check(CLI::Range(1, 65536));
  app.add_option(
         "--job-file", options.job_file,
         "write here, for --join, how the job is reached; only you can read the file, as it "
         "has the job's secret. It is removed at the end")
      ->type_name("FILE");
  app.add_option("--join", options.joins, "join the running job of this file")->type_name("FILE");
  const auto code = parse_command_line(app, argc, argv, [&] { check(options, app, coordinator); });
  if (code) {
    exit_code = *code;
    return std::nullopt;
  }
  if (app.count("--tag-output") > 0) options.tags = has_tags ? Tags::kAllLines : Tags::kNone;
  options.timeout = seconds(timeout);
  options.grace = seconds(grace);
  return options;
}

}  // namespace dunlin::run
