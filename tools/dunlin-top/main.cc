// dunlin-top: shows what the ranks of a job on this host do, for whom they wait, and which of them
// hold up the others, while the job runs or after its death.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>

#include "apps/command_line/command_line.h"
#include "runtime/flight/folder.h"
#include "runtime/flight/metrics.h"
#include "runtime/flight/metrics_server.h"
#include "runtime/flight/report.h"
#include "runtime/log.h"
#include "runtime/print.h"
#include "runtime/units.h"
#include "tools/dunlin-top/json.h"
#include "tools/dunlin-top/screen.h"
#include "tools/dunlin-top/terminal.h"
#include "tools/dunlin-top/watch.h"
#include "tools/lib/output.h"

namespace dunlin::top {
namespace {

constexpr int kFailure = 1;  // exit code

struct Options {
  std::string folder;  // instead of the configured one
  std::string job;
  double interval_s = 0.5;
  double window_s = 2;
  double stuck_after_s = 5;
  bool is_once = false;
  bool is_listing = false;
  bool is_post_mortem = false;
  std::size_t events = 10;
  std::string metrics;
  std::string json;  // as Output::open() takes it
};

Duration duration_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

Status list(const std::string& base) {
  std::string text;
  for (const flight::JobFolder& job : flight::list_jobs(base)) {
    text += fmt::format("{}  {} ranks{}\n", job.name, job.records.size(),
                        is_running(job.path) ? "" : ", has ended");
  }
  return print(text.empty() ? fmt::format("there is no job in {}\n", base) : text);
}

Status show_past(const std::string& folder, const Options& options) {
  const SteadyClock clock;
  DUNLIN_ASSIGN(const auto output, tools::Output::open(options.json));
  std::vector<PastRank> ranks;
  std::vector<flight::Snapshot> snapshots;
  std::string problems;
  for (const std::string& path : flight::list_records(folder)) {
    const auto record = flight::Record::open(path);
    if (!record) {
      problems += fmt::format("{}\n", record.status().message());
      continue;
    }
    ranks.push_back({record->snapshot(clock.now()), record->events()});
    snapshots.push_back(ranks.back().snapshot);
  }
  if (!problems.empty()) print_error(problems);
  if (ranks.empty()) {
    return {Code::kNotFound, fmt::format("there is no readable flight record in {}", folder)};
  }
  DUNLIN_TRY(output->text(post_mortem(ranks, options.events)));
  return output->json(to_json(flight::view_of({}, snapshots)));
}

// Waits for a job, unless there is to be one view only, and reads its records. Null if the user
// ends the program meanwhile.
Result<std::unique_ptr<Watch>> find_watch(const std::string& base, const Options& options,
                                          const tools::Output& output, Terminal& terminal) {
  for (;;) {
    const auto folder = find_job(base, options.job, false);
    if (folder) {
      auto watch = std::make_unique<Watch>(*folder, duration_of(options.window_s));
      watch->refresh();
      // A job that has just ended may have removed its records meanwhile.
      if (!watch->is_empty()) return watch;
    }
    const std::string problem =
        folder ? *folder + " has no readable record" : std::string(folder.status().message());
    if (options.is_once) return Status(Code::kNotFound, problem);
    if (output.prints_text())
      DUNLIN_TRY(terminal.show(fmt::format("{}\nwaiting for one\n", problem)));
    if (!terminal.pause(duration_of(options.interval_s))) return std::unique_ptr<Watch>();
  }
}

Status show_live(const std::string& base, const Options& options) {
  DUNLIN_ASSIGN(const auto output, tools::Output::open(options.json));
  DUNLIN_ASSIGN(Terminal terminal, Terminal::open());
  DUNLIN_ASSIGN(const auto found, find_watch(base, options, *output, terminal));
  if (!found) return Status::ok();
  Watch& watch = *found;
  flight::ViewOptions view_options;
  view_options.stuck_after = duration_of(options.stuck_after_s);
  // One view needs a period to look back over.
  if (options.is_once) {
    if (!terminal.pause(duration_of(options.interval_s))) return Status::ok();
    watch.refresh();
  }
  for (;;) {
    const flight::JobView view = watch.view(view_options);
    if (output->prints_text()) DUNLIN_TRY(terminal.show(screen(view, terminal.size())));
    DUNLIN_TRY(output->json(to_json(view)));
    if (options.is_once || watch.is_over()) break;
    if (!terminal.pause(duration_of(options.interval_s))) break;
    watch.refresh();
  }
  for (const std::string& problem : watch.problems()) print_error(problem + "\n");
  return Status::ok();
}

Status serve(const std::string& base, const Options& options) {
  auto address = flight::MetricsAddress::parse(options.metrics, Rank(0), 0);
  if (!address) return std::move(address).status().with_context("--metrics");
  DUNLIN_ASSIGN(Terminal terminal, Terminal::open());
  const auto content = [base] {
    std::vector<std::string> paths;
    for (const flight::JobFolder& job : flight::list_jobs(base)) {
      if (is_running(job.path)) paths.insert(paths.end(), job.records.begin(), job.records.end());
    }
    return flight::metrics_of_files(paths);
  };
  DUNLIN_ASSIGN(const auto server, flight::MetricsServer::start(*address, content));
  while (terminal.pause(std::chrono::hours(1))) {
  }
  return Status::ok();
}

Status run(const Options& options) {
  const Environment environment = Environment::of_process();
  DUNLIN_ASSIGN(const Config config, Config::parse(environment));
  configure_log(config.log_level, Rank());
  const std::string base = options.folder.empty() ? flight::base_folder(config) : options.folder;
  if (options.is_listing) return list(base);
  if (!options.metrics.empty()) return serve(base, options);
  if (!options.is_post_mortem) return show_live(base, options);
  // The folder may be that of the job itself, copied from elsewhere.
  if (!options.folder.empty() && !flight::list_records(base).empty())
    return show_past(base, options);
  DUNLIN_ASSIGN(const std::string folder, find_job(base, options.job, true));
  return show_past(folder, options);
}

CLI::Option* add_time(CLI::App& app, const std::string& name, double& seconds,
                      const std::string& preset, const std::string& help) {
  return app.add_option(name, seconds, help)
      ->transform(
          CLI::Validator(time_option({.low = std::chrono::milliseconds(10), .bare_unit = "s"}), ""))
      ->type_name("TIME")
      ->default_str(preset);
}

int main(int argc, char** argv) {
  CLI::App app(
      "Shows what the ranks of a job on this host do: for each its step, how much it waits and for "
      "whom, and the bytes that it moves by each transport. Names the ranks that hold up others, "
      "and says whether they are slow, stuck, stopped or dead. It reads the flight records of the "
      "user's jobs, and disturbs nothing.",
      "dunlin-top");
  Options options;
  app.add_option("--job", options.job,
                 "name of the job, or how it begins (default: the newest one)");
  app.add_option("--dir", options.folder,
                 "folder of the flight records (default: as DUNLIN_FLIGHT says)");
  add_time(app, "--interval", options.interval_s, "0.5s", "time between two views");
  add_time(app, "--window", options.window_s, "2s",
           "period over which rates and shares are computed");
  add_time(app, "--stuck-after", options.stuck_after_s, "5s",
           "a rank is stuck, and not only slow, when it has done nothing for so long and for five "
           "of its usual steps");
  app.add_flag("--once", options.is_once, "print one view, over one interval, and exit");
  app.add_flag("--list", options.is_listing, "list the jobs of this user on this host");
  app.add_flag("--post-mortem", options.is_post_mortem,
               "show what a job that has ended did last; with --dir, also one whose records were "
               "copied from elsewhere");
  app.add_option("--events", options.events, "events per rank in a post-mortem")
      ->check(CLI::Range(0, 4096));
  app.add_option("--metrics", options.metrics,
                 "serve the metrics of all jobs of this user on this host to Prometheus, at "
                 "unix:PATH or at a port of the loopback interface, and show nothing")
      ->type_name("ADDRESS");
  add_json_options(app, options.json);
  for (const char* const other : {"--json", "--json-out"})
    app.get_option("--list")->excludes(app.get_option(other));
  app.footer(
      "A rank holds up others if they lose 10 % of a rank's time because of it, and twice as much "
      "as because of other ranks. A wait for a rank that waits itself counts against that for "
      "which it waits. \"own step\" is the time of a step without waits. JSON is one object per "
      "view.\n"
      "Without --once, it waits for a job to start, and ends when the job has ended.\n"
      "Exit codes: 0 done, 1 there is no such job, or the output could not be written, 2 wrong "
      "usage.");
  if (const auto code = parse_command_line(app, argc, argv)) return *code;
  const Status status = run(options);
  if (status.is_ok()) return 0;
  print_error(fmt::format("dunlin-top: {}\n", status.message()));
  return kFailure;
}

}  // namespace
}  // namespace dunlin::top

int main(int argc, char** argv) {
  return dunlin::top::main(argc, argv);
}
