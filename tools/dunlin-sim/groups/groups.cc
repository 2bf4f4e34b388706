// dunlin-sim groups: partial all-reduces beside the methods with which their paper compares them,
// on a cluster with a slow worker.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tools/dunlin-sim/command.h"
#include "tools/dunlin-sim/groups/options.h"
#include "tools/dunlin-sim/groups/sweeps.h"

namespace dunlin::simulate {
namespace {

class GroupsCommand final : public Command {
 public:
  std::string name() const override { return "groups"; }
  std::string help() const override {
    return "static, random and smart partial all-reduce with a slow worker, beside all-reduce, "
           "parameter server, local SGD and AD-PSGD: figures 16 to 19 of their paper";
  }
  void set_defaults(Scenario& scenario) const override { options_.set_defaults(scenario); }
  void declare(CLI::App& app) override { options_.declare(app); }
  Status check(const Scenario& scenario) const override { return options_.check(scenario); }
  nlohmann::ordered_json options() const override { return options_.to_json(); }

  Result<Report> run(const Scenario& scenario) override {
    GroupSetting setting = options_.setting(scenario);
    Report report;
    report.table = fmt::format("groups: {} hosts of {} workers, seed {}\n", setting.layout.hosts,
                               setting.layout.workers_per_host, setting.seed);
    if (const auto learning = options_.learning())
      report.table += fmt::format("learning to a loss of {:g}, at a rate of {:g}, batches of {}\n",
                                  learning->target_loss, learning->learning_rate, learning->batch);
    const auto times = options_.compute_times(scenario);
    std::optional<Duration> sweeps_with;
    for (const std::optional<Duration>& time : times) {
      DUNLIN_ASSIGN(setting.compute, time ? *time : calibrated(setting));
      if (!time || !sweeps_with) sweeps_with = setting.compute;
      if (times.size() > 1 || !time)
        report.table += fmt::format("computation: {}{}\n", format_duration(setting.compute),
                                    time ? "" : describe_calibration());
      DUNLIN_TRY(add_figures(setting, !time, report));
    }
    setting.compute = *sweeps_with;
    if (times.size() > 1 && (!options_.section_lengths().empty() || !options_.scale().empty()))
      report.table += fmt::format("computation: {}\n", format_duration(setting.compute));
    DUNLIN_TRY(add_sections(setting, report));
    DUNLIN_TRY(add_scale(scenario, setting.compute, report));
    return report;
  }

 private:
  Result<Duration> calibrated(const GroupSetting& setting) const {
    return calibrate_compute(setting, options_.calibrated_ratio());
  }
  std::string describe_calibration() const {
    return fmt::format(", calibrated: all-reduce is {:g} times as fast as the parameter server",
                       options_.calibrated_ratio());
  }

  Status add_figures(const GroupSetting& setting, bool is_calibrated, Report& report) const {
    DUNLIN_ASSIGN(const auto points,
                  make_group_figures(setting, options_.factors(), options_.learning()));
    report.table += to_text(points);
    for (auto& row : simulate::to_json(points)) {
      row["is_calibrated"] = is_calibrated;
      add_row("figures", setting, std::move(row), report);
    }
    return Status::ok();
  }

  Status add_sections(const GroupSetting& setting, Report& report) const {
    if (options_.section_lengths().empty()) return Status::ok();
    DUNLIN_ASSIGN(const auto points,
                  make_section_figure(setting, options_.section_lengths(), *options_.learning()));
    report.table += to_text(points);
    for (auto& row : simulate::to_json(points))
      add_row("sections", setting, std::move(row), report);
    return Status::ok();
  }

  // Measures with equal workers, and with one worker slowed by the largest factor.
  Status add_scale(const Scenario& scenario, Duration compute, Report& report) const {
    const double largest = *std::max_element(options_.factors().begin(), options_.factors().end());
    std::vector<ScaleBlock> blocks;
    for (const int workers : options_.scale()) {
      GroupSetting setting = options_.setting(scenario, workers);
      setting.compute = compute;
      DUNLIN_ASSIGN(auto points,
                    compare_methods(setting, {{}, {largest, false}}, options_.learning()));
      for (auto& row : simulate::to_json(points)) {
        row.erase("figure");
        add_row("scale", setting, std::move(row), report);
      }
      blocks.push_back({workers, std::move(points)});
    }
    report.table += to_text(blocks);
    return Status::ok();
  }

  static void add_row(const char* table, const GroupSetting& setting, nlohmann::ordered_json row,
                      Report& report) {
    row["table"] = table;
    row["workers"] = setting.layout.workers();
    row["hosts"] = setting.layout.hosts;
    row["seed"] = setting.seed;
    row["steps"] = setting.iterations;
    row["compute_us"] = to_seconds(setting.compute) * 1e6;
    row["links"] = {{"host", to_json(setting.within)}, {"rack", to_json(setting.between)}};
    report.rows.push_back(std::move(row));
  }

  // The same members as in the JSON lines of other commands.
  static nlohmann::ordered_json to_json(const transport::sim::LinkClass& link) {
    return {{"latency_us", to_seconds(link.latency) * 1e6}, {"gbytes_per_s", link.bandwidth / 1e9}};
  }

  GroupsOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_groups_command() {
  return std::make_unique<GroupsCommand>();
}

}  // namespace dunlin::simulate
