// dunlin-sim groups: partial all-reduces beside the methods that their paper compares them with, on
// a cluster one of whose workers is slow.
#include <fmt/format.h>

#include "collectives/partial/group_policy.h"
#include "tools/dunlin-sim/command.h"
#include "tools/dunlin-sim/group_figures.h"

namespace dunlin::simulate {
namespace {

class GroupsCommand final : public Command {
 public:
  std::string name() const override { return "groups"; }
  std::string help() const override {
    return "static, random and smart partial all-reduce with a slow worker, beside all-reduce, "
           "parameter server and AD-PSGD: figures 17 and 19 of their paper";
  }
  void set_defaults(Scenario& scenario) const override {
    scenario.network.ranks = setting_.layout.workers();
    scenario.network.ranks_per_host = setting_.layout.workers_per_node;
    scenario.network.rack = setting_.between;
    scenario.network.host = setting_.within;
    scenario.network.shares_nic = true;
    scenario.compute = setting_.compute;
    scenario.steps = setting_.iterations;
  }

  void declare(CLI::App& app) override {
    app.add_option("--size", setting_.model_bytes, "bytes of the model")
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(1.0, 1e15))
        ->default_str("9.23 MB")
        ->group(kOwnOptions);
    app.add_option("--slowdowns", factors_,
                   "how many times its computation a slow worker sleeps in addition")
        ->delimiter(',')
        ->check(CLI::Range(0.001, 1e6))
        ->default_str("2,5")
        ->group(kOwnOptions);
    app.add_option("--slow-worker", setting_.slow_worker, "its rank")
        ->capture_default_str()
        ->group(kOwnOptions);
    app.add_option("--compute-spread", setting_.compute_spread,
                   "share by which computations are shorter or longer, at random")
        ->check(CLI::Range(0.0, 1.0))
        ->capture_default_str()
        ->group(kOwnOptions);
    app.add_option("--group-size", setting_.group_size, "of random and smart groups")
        ->capture_default_str()
        ->group(kOwnOptions);
    app.add_option("--slowdown-threshold", setting_.slowdown_threshold,
                   "C_thres, in iterations, of smart groups")
        ->capture_default_str()
        ->group(kOwnOptions);
    add_parsed(app, "--message-time",
               "TIME of a message to the group generator, and from it (default: 50us)",
               parse_duration, setting_.message);
  }

  Status check(const Scenario& scenario) const override {
    const auto& network = scenario.network;
    if (network.hosts_per_rack != 0 || network.hostility || !scenario.kills.empty() ||
        !network.stragglers.empty() || network.ranks % network.ranks_per_host != 0)
      return {
          Code::kInvalidArgument,
          "groups: wants full nodes in one rack, slow workers from --slowdowns, and no trouble"};
    const GroupSetting setting = setting_of(scenario);
    if (setting.layout.workers() < 2 || setting.slow_worker < 0 ||
        setting.slow_worker >= setting.layout.workers())
      return {Code::kInvalidArgument,
              fmt::format("groups: --slow-worker {} is none of {} workers, of which there must be "
                          "two at least",
                          setting.slow_worker, setting.layout.workers())};
    collective::GroupOptions options;
    options.layout = setting.layout;
    options.group_size = setting.group_size;
    options.slowdown_threshold = setting.slowdown_threshold;
    return collective::check(options);
  }

  nlohmann::ordered_json options() const override {
    return {{"size", setting_.model_bytes},
            {"slow_worker", setting_.slow_worker},
            {"compute_spread", setting_.compute_spread},
            {"group_size", setting_.group_size},
            {"slowdown_threshold", setting_.slowdown_threshold},
            {"message_us", to_seconds(setting_.message) * 1e6}};
  }

  Result<Report> run(const Scenario& scenario) override {
    const GroupSetting setting = setting_of(scenario);
    DUNLIN_ASSIGN(const auto points, make_group_figures(setting, factors_));
    Report report;
    report.table = fmt::format("groups: {} nodes of {} workers, seed {}\n", setting.layout.nodes,
                               setting.layout.workers_per_node, setting.seed) +
                   to_text(points);
    for (auto& row : to_json(points)) {
      row["workers"] = setting.layout.workers();
      row["nodes"] = setting.layout.nodes;
      row["seed"] = setting.seed;
      report.rows.push_back(std::move(row));
    }
    return report;
  }

 private:
  GroupSetting setting_of(const Scenario& scenario) const {
    GroupSetting setting = setting_;
    setting.layout.workers_per_node = scenario.network.ranks_per_host;
    setting.layout.nodes = scenario.network.ranks / scenario.network.ranks_per_host;
    setting.between = scenario.network.rack;
    setting.within = scenario.network.host;
    setting.compute = scenario.compute;
    setting.iterations = scenario.steps;
    setting.seed = scenario.network.seed;
    return setting;
  }

  GroupSetting setting_;
  std::vector<double> factors_{2, 5};
};

}  // namespace

std::unique_ptr<Command> make_groups_command() {
  return std::make_unique<GroupsCommand>();
}

}  // namespace dunlin::simulate
