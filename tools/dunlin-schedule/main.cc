// dunlin-schedule: collectives as data: lists, checks, costs and draws their schedules.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "runtime/print.h"
#include "tools/dunlin-schedule/commands.h"

namespace dunlin::schedule {
namespace {

// Exit codes.
constexpr int kFailure = 1;
constexpr int kUsage = 2;
// Programs of all ranks are held in memory: beyond, they are too many.
constexpr int kMostRanks = 4096;

using Command = Status (*)(const Words&);

void declare_schedule(CLI::App& app, Words& words) {
  app.add_option("--collective", words.collective, "what the schedule does")->capture_default_str();
  app.add_option("--algorithm", words.algorithm, "a name of `list`, or all")->capture_default_str();
  app.add_option("-n,--ranks", words.ranks, "number of ranks")
      ->check(CLI::Range(1, kMostRanks))
      ->capture_default_str();
  app.add_option("--groups", words.groups, "groups of ranks; default: about the root of --ranks")
      ->check(CLI::Range(1, kMostRanks));
  app.add_option("--grid", words.grid,
                 "RxC, of the ranks (torus-2d, mesh-2d) or the groups (2d-tga); default: squarest");
  app.add_option("--root", words.root, "of a reduce or a broadcast");
  app.add_option(
         "--size", words.size,
         "bytes of the vector (of a rank's block where there are such): 4096, 64KiB, 25.6MB")
      ->capture_default_str();
  app.add_option("--element", words.element, "bytes of an element")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  app.add_option("--segment", words.segment, "bytes of a message at most; default: unlimited");
}

void declare_links(CLI::App& app, Words& words) {
  app.add_option("--alpha", words.alpha, "latency of a message")->capture_default_str();
  app.add_option("--bandwidth", words.bandwidth, "such as 100Gb, 12.5GB, unlimited")
      ->capture_default_str();
}

void declare_costs(CLI::App& app, Words& words) {
  declare_links(app, words);
  app.add_option("--per-host", words.per_host, "ranks of a host; default: a group is a host")
      ->check(CLI::Range(1, kMostRanks));
  app.add_option("--intra-alpha", words.intra_alpha, "within hosts; default: --alpha");
  app.add_option("--intra-bandwidth", words.intra_bandwidth, "within hosts; default: --bandwidth");
  app.add_option("--gamma", words.gamma, "time to add a byte to another")->capture_default_str();
}

void declare_json(CLI::App& app, Words& words) {
  app.add_flag("--json", words.json, "print JSON");
}

class CommandLine {
 public:
  explicit CommandLine(CLI::App& app) : app_(app) {
    app.require_subcommand(1);
    app.footer("Exit codes: 0 done, 1 failed (or a wrong schedule), 2 wrong usage.");
    declare_json(*add("list", "the algorithms there are", list), words_);

    CLI::App* const check_app = add("check", "prove that schedules are right", check);
    declare_schedule(*check_app, words_);
    declare_json(*check_app, words_);

    CLI::App* const cost_app = add("cost", "predict how long schedules take, and by formula", cost);
    declare_schedule(*cost_app, words_);
    declare_costs(*cost_app, words_);
    declare_json(*cost_app, words_);

    CLI::App* const draw_app = add("draw", "draw a schedule over predicted time", draw);
    declare_schedule(*draw_app, words_);
    declare_costs(*draw_app, words_);
    draw_app->add_option("--svg", words_.svg_path, "picture to write");
    draw_app->add_option("--trace", words_.trace_path,
                         "trace to write, for Perfetto or chrome://tracing");

    CLI::App* const figures_app =
        add("figures", "Figs. 3 and 4 of the 2D-TGA paper, and what it says of them", figures);
    declare_links(*figures_app, words_);
    figures_app->add_option("--size", figures_size_, "bytes of the vector")->capture_default_str();
    figures_app->add_flag("--check-schedules", words_.check_schedules,
                          "predict every point from its schedule as well (takes some seconds)");
    figures_app->add_flag("--json", words_.json, "print JSON lines, for dunlin-plot schedule");
  }

  Status run() {
    for (const auto& [app, command] : commands_) {
      if (!app->parsed()) continue;
      if (command == figures) words_.size = figures_size_;
      return command(words_);
    }
    return {Code::kInvalidArgument, "no command"};
  }

 private:
  CLI::App* add(const char* name, const char* help, Command command) {
    CLI::App* const app = app_.add_subcommand(name, help);
    commands_.emplace_back(app, command);
    return app;
  }

  CLI::App& app_;
  Words words_;
  // Latencies have to count for something, or there would be nothing to see.
  std::string figures_size_ = "64KiB";
  std::vector<std::pair<CLI::App*, Command>> commands_;
};

int main(int argc, char** argv) {
  CLI::App app("Lists, checks, costs and draws schedules of collectives.", "dunlin-schedule");
  CommandLine command_line(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  const Status status = command_line.run();
  if (status.is_ok()) return 0;
  print_error(fmt::format("dunlin-schedule: {}\n", status.message()));
  return status.code() == Code::kInvalidArgument ? kUsage : kFailure;
}

}  // namespace
}  // namespace dunlin::schedule

int main(int argc, char** argv) {
  return dunlin::schedule::main(argc, argv);
}
