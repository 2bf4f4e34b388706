// dunlin-sim: runs the protocols of the library on a simulated network, in virtual time.
#include <fmt/format.h>

#include <vector>

#include "apps/command_line/command_line.h"
#include "runtime/config.h"
#include "runtime/log.h"
#include "runtime/print.h"
#include "tools/dunlin-sim/command.h"
#include "tools/lib/output.h"

namespace dunlin::simulate {
namespace {

constexpr int kFailure = 1;  // exit code

constexpr const char* kFooter =
    "All ranks run in this process, with the protocols of the library, in virtual time:\n"
    "  dunlin-sim reduce -n 64 --graph root-expander --count 1M --compute 5ms --straggler 3:5\n"
    "  dunlin-sim barrier -n 100 --latency 2us --jitter exponential:1us --seeds 100\n"
    "  dunlin-sim all-reduce -n 4096 --algorithm ring --size 64M --reduce-bandwidth 20GB\n"
    "The same command line gives the same run, except for the real time that it takes.\n"
    "Exit codes: 0 done, 1 failed (wrong data, a hang), 2 wrong usage.";

// A subcommand and the scenario that is parsed for it.
struct Choice {
  explicit Choice(std::unique_ptr<Command> made) : command(std::move(made)), options(scenario) {
    command->set_defaults(scenario);
  }
  std::unique_ptr<Command> command;
  Scenario scenario;
  ScenarioOptions options;
  CLI::App* app = nullptr;
};

std::vector<std::unique_ptr<Choice>> make_choices() {
  std::vector<std::unique_ptr<Choice>> choices;
  for (auto* const make :
       {make_channel_command, make_barrier_command, make_reduce_command, make_neighbor_command,
        make_straggler_ring_command, make_figures_command, make_groups_command}) {
    choices.push_back(std::make_unique<Choice>(make()));
  }
  for (const auto collective : collective::kAllCollectives) {
    // The name `barrier` belongs to make_barrier_command().
    if (collective == collective::Collective::kBarrier) continue;
    choices.push_back(std::make_unique<Choice>(make_collective_command(collective)));
  }
  return choices;
}

// Returns the command line that runs this one seed again.
std::string replay(const std::vector<std::string>& arguments, std::uint64_t seed) {
  std::string text = "dunlin-sim";
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--seed" || arguments[i] == "--seeds") {
      ++i;
    } else if (!arguments[i].starts_with("--seed=") && !arguments[i].starts_with("--seeds=")) {
      text += ' ' + arguments[i];
    }
  }
  return text + fmt::format(" --seed {}", seed);
}

Status run_seed(Command& command, const Scenario& scenario, const tools::Output& output) {
  auto report = command.run(scenario);
  nlohmann::ordered_json context{{"what", command.name()}};
  context.update(command.options());
  if (report && !report->rows.empty()) {
    DUNLIN_TRY(output.text(report->table));
    for (const auto& row : report->rows) DUNLIN_TRY(output.json(context, row));
    return Status::ok();
  }
  context.update(to_json(scenario));
  if (!report) {
    DUNLIN_TRY(output.json(context, {{"failure", report.status().to_string()}}));
    return std::move(report).status();
  }
  DUNLIN_TRY(
      output.text(fmt::format("{}: {}\n{}", command.name(), describe(scenario), to_text(*report))));
  return output.json(context, to_json(*report));
}

Status run(Choice& choice, const std::vector<std::string>& arguments) {
  DUNLIN_ASSIGN(const Config config, Config::from_environment());
  configure_log(config.log_level, Rank());
  Scenario scenario = choice.scenario;
  DUNLIN_TRY(choice.command->check(scenario));
  DUNLIN_ASSIGN(const auto output, tools::Output::open(scenario.json));
  for (std::uint64_t i = 0; i < choice.scenario.seeds; ++i) {
    scenario.network.seed = choice.scenario.network.seed + i;
    Status status = run_seed(*choice.command, scenario, *output);
    if (status.is_ok()) continue;
    return std::move(status).with_context(fmt::format("seed {} fails; to run it again: `{}`",
                                                      scenario.network.seed,
                                                      replay(arguments, scenario.network.seed)));
  }
  return Status::ok();
}

int main(int argc, char** argv) {
  CLI::App app("Runs the protocols on a simulated network, in virtual time.", "dunlin-sim");
  app.require_subcommand(1);
  app.footer(kFooter);
  const auto choices = make_choices();
  for (const auto& choice : choices) {
    choice->app = app.add_subcommand(choice->command->name(), choice->command->help());
    choice->command->declare(*choice->app);
    choice->options.declare(*choice->app);
  }
  Choice* chosen = nullptr;
  const auto code = parse_command_line(app, argc, argv, [&] {
    for (const auto& choice : choices) {
      if (choice->app->parsed()) chosen = choice.get();
    }
    chosen->options.finish(*chosen->app);
  });
  if (code) return *code;
  const Status status = run(*chosen, {argv + 1, argv + argc});
  if (status.is_ok()) return 0;
  print_error(fmt::format("dunlin-sim: {}\n", status.to_string()));
  return status.code() == Code::kInvalidArgument ? kWrongUsage : kFailure;
}

}  // namespace
}  // namespace dunlin::simulate

int main(int argc, char** argv) {
  return dunlin::simulate::main(argc, argv);
}
