// dunlin-sim groups: partial all-reduces beside the methods that their paper compares them with, on
// a cluster one of whose workers is slow.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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
    app_ = &app;
    app.add_option("--size", setting_.model_bytes, "bytes of the model")
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(1.0, 1e15))
        ->default_str("9230000")
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
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 32))
        ->capture_default_str()
        ->group(kOwnOptions);
    app.add_option("--most-alone", setting_.most_alone,
                   "times in a row that a worker that finds nobody free goes on alone, of smart "
                   "groups; the paper has no such rule: 0")
        ->check(CLI::Range(std::uint32_t{0}, std::uint32_t{1} << 20))
        ->capture_default_str()
        ->group(kOwnOptions);
    app.add_flag("!--no-intra-filter", setting_.intra_filter,
                 "the slowdown filter doesn't hold for smart groups inside nodes, as in the paper")
        ->group(kOwnOptions);
    add_parsed(app, "--message-time",
               "TIME of a message to the group generator, and from it (default: 50us)",
               parse_duration, setting_.message);
  }

  Status check(const Scenario& scenario) const override {
    // What its model hasn't: to ignore that would be to answer another question.
    for (const char* const name :
         {"--hosts-per-rack", "--spine-latency", "--spine-bandwidth", "--oversubscription",
          "--overhead", "--jitter", "--queue-depth", "--straggler", "--kill", "--loss-notice",
          "--hostile", "--no-check", "--most-events"}) {
      if (app_->count(name) > 0)
        return {Code::kInvalidArgument, fmt::format("groups: its model has no {}", name)};
    }
    const auto& network = scenario.network;
    if (network.ranks % network.ranks_per_host != 0)
      return {Code::kInvalidArgument, fmt::format("groups: {} ranks don't fill nodes of {}",
                                                  network.ranks, network.ranks_per_host)};
    const auto is_finite = [](double value) { return std::isfinite(value); };
    if (!std::all_of(factors_.begin(), factors_.end(), is_finite))
      return {Code::kInvalidArgument, "groups: --slowdowns must be numbers"};
    if (!is_finite(setting_.compute_spread) || !is_finite(setting_.model_bytes))
      return {Code::kInvalidArgument, "groups: --compute-spread and --size must be numbers"};
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
            {"most_alone", setting_.most_alone},
            {"intra_filter", setting_.intra_filter},
            {"message_us", to_seconds(setting_.message) * 1e6}};
  }

  Result<Report> run(const Scenario& scenario) override {
    const GroupSetting setting = setting_of(scenario);
    DUNLIN_ASSIGN(const auto points, make_group_figures(setting, factors_));
    Report report;
    report.table = fmt::format("groups: {} nodes of {} workers, seed {}\n", setting.layout.nodes,
                               setting.layout.workers_per_node, setting.seed) +
                   to_text(points);
    for (auto& row : simulate::to_json(points)) {
      row["workers"] = setting.layout.workers();
      row["nodes"] = setting.layout.nodes;
      row["seed"] = setting.seed;
      row["steps"] = setting.iterations;
      row["compute_us"] = to_seconds(setting.compute) * 1e6;
      row["links"] = {{"host", to_json(setting.within)}, {"rack", to_json(setting.between)}};
      report.rows.push_back(std::move(row));
    }
    return report;
  }

 private:
  // As scenario.h has it of other commands.
  static nlohmann::ordered_json to_json(const transport::sim::LinkClass& link) {
    return {{"latency_us", to_seconds(link.latency) * 1e6}, {"gbytes_per_s", link.bandwidth / 1e9}};
  }

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
  const CLI::App* app_ = nullptr;
};

}  // namespace

std::unique_ptr<Command> make_groups_command() {
  return std::make_unique<GroupsCommand>();
}

}  // namespace dunlin::simulate
