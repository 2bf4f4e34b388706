// dunlin-schedule: lists, checks and draws the schedules of collectives, and predicts their times.
#include <fmt/format.h>

#include "apps/command_line/command_line.h"
#include "runtime/print.h"
#include "tools/dunlin-schedule/commands.h"

namespace dunlin::schedule {
namespace {

// Exit codes.
constexpr int kFailure = 1;
// The programs of all ranks are held in memory.
constexpr int kMostRanks = 4096;

using Command = Status (*)(const Words&);

void declare_schedule(CLI::App& app, Words& words) {
  app.add_option("--collective", words.collective, "the operation: all-reduce, broadcast, ...")
      ->capture_default_str();
  app.add_option("--algorithm", words.algorithm, "a name that `list` prints, or all")
      ->capture_default_str();
  app.add_option("-n,--ranks", words.ranks, "number of ranks")
      ->check(CLI::Range(1, kMostRanks))
      ->capture_default_str();
  app.add_option("--groups", words.groups,
                 "number of groups of ranks; default: about the root of --ranks")
      ->check(CLI::Range(1, kMostRanks));
  app.add_option("--grid", words.grid,
                 "arrangement of the ranks (torus-2d, mesh-2d) or of the groups (2d-tga); default: "
                 "as square as possible")
      ->type_name("ROWSxCOLUMNS");
  app.add_option("--root", words.root, "root rank of a reduce or a broadcast")->type_name("RANK");
  app.add_option("--size", words.size,
                 "bytes of the vector, or of a rank's block when the collective has blocks: 4096, "
                 "64KiB, 25.6MB")
      ->capture_default_str();
  app.add_option("--element", words.element, "bytes of an element")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  app.add_option("--segment", words.segment, "largest message; default: unlimited")
      ->type_name("SIZE");
}

void declare_links(CLI::App& app, Words& words) {
  app.add_option("--alpha", words.alpha, "latency of a message")
      ->type_name("TIME")
      ->capture_default_str();
  app.add_option("--bandwidth", words.bandwidth, "such as 100Gb, 12.5GB, unlimited")
      ->type_name("RATE")
      ->capture_default_str();
}

void declare_costs(CLI::App& app, Words& words) {
  declare_links(app, words);
  app.add_option("--per-host", words.per_host, "ranks of a host; default: a group is a host")
      ->check(CLI::Range(1, kMostRanks));
  app.add_option("--intra-alpha", words.intra_alpha, "latency within hosts; default: --alpha")
      ->type_name("TIME");
  app.add_option("--intra-bandwidth", words.intra_bandwidth,
                 "bandwidth within hosts; default: --bandwidth")
      ->type_name("RATE");
  app.add_option("--gamma", words.gamma, "time to add a byte to another")
      ->type_name("TIME")
      ->capture_default_str();
}

class CommandLine {
 public:
  explicit CommandLine(CLI::App& app) : app_(app) {
    app.require_subcommand(1);
    app.footer("Exit codes: 0 done, 1 failed (or a wrong schedule), 2 wrong usage.");
    add_json_options(*add("list", "list the algorithms", list), words_.json);

    CLI::App* const check_app = add("check", "prove that schedules are right", check);
    declare_schedule(*check_app, words_);
    add_json_options(*check_app, words_.json);

    CLI::App* const cost_app =
        add("cost", "predict the times of schedules, beside their formulas", cost);
    declare_schedule(*cost_app, words_);
    declare_costs(*cost_app, words_);
    add_json_options(*cost_app, words_.json);

    CLI::App* const draw_app = add("draw", "draw a schedule over predicted time", draw);
    declare_schedule(*draw_app, words_);
    declare_costs(*draw_app, words_);
    draw_app->add_option("--svg", words_.svg_path, "the picture to write; its name ends in .svg")
        ->type_name("FILE");
    draw_app
        ->add_option("--trace", words_.trace_path,
                     "the trace to write, for Perfetto or chrome://tracing")
        ->type_name("FILE");

    CLI::App* const figures_app =
        add("figures", "figures 3 and 4 of the 2D-TGA paper, and what it says of them", figures);
    declare_links(*figures_app, words_);
    figures_app->add_option("--size", figures_size_, "bytes of the vector")->capture_default_str();
    figures_app->add_flag("--check-schedules", words_.check_schedules,
                          "predict every point from its schedule as well (takes some seconds)");
    add_json_options(*figures_app, words_.json);
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
  // Small enough that latencies show.
  std::string figures_size_ = "64KiB";
  std::vector<std::pair<CLI::App*, Command>> commands_;
};

int main(int argc, char** argv) {
  CLI::App app("Lists, checks and draws the schedules of collectives, and predicts their times.",
               "dunlin-schedule");
  CommandLine command_line(app);
  if (const auto code = parse_command_line(app, argc, argv)) return *code;
  const Status status = command_line.run();
  if (status.is_ok()) return 0;
  print_error(fmt::format("dunlin-schedule: {}\n", status.message()));
  return status.code() == Code::kInvalidArgument ? kWrongUsage : kFailure;
}

}  // namespace
}  // namespace dunlin::schedule

int main(int argc, char** argv) {
  return dunlin::schedule::main(argc, argv);
}
