// dunlin-sim figures-2d-tga: simulates the schedules whose times the paper on 2D-TGA compares by
// formulas (figures 3 and 4), and prints the times beside the formulas. All links are of one kind:
// alpha is --latency, B is --bandwidth, S is --size, C is 1 / --reduce-bandwidth.
#include <fmt/format.h>

#include "collectives/schedule/closed_form.h"
#include "tools/dunlin-sim/command.h"
#include "tools/dunlin-sim/network/schedule_world.h"
#include "tools/dunlin-sim/own_options.h"

namespace dunlin::simulate {
namespace {

using collective::Collective;
using collective::Grouping;

constexpr std::size_t kElement = sizeof(float);

// One point of a figure.
struct Point {
  const char* figure;
  const char* algorithm;
  int workers;
  int groups;
};

// Figure 3a has 16 groups of increasing numbers of workers, 3b has 1,024 workers in increasing
// numbers of groups. 4a and 4b show the same for 2D-TGA alone, with other numbers of groups and
// workers.
std::vector<Point> points() {
  std::vector<Point> all;
  for (const char* const algorithm : {"ring", "hierarchical", "torus-2d", "2d-tga"}) {
    for (int workers = 16; workers <= 1024; workers *= 2)
      all.push_back({"3a", algorithm, workers, 16});
  }
  for (const char* const algorithm : {"hierarchical", "2d-tga"}) {
    for (int groups = 4; groups <= 64; groups *= 2) all.push_back({"3b", algorithm, 1024, groups});
  }
  for (int groups = 4; groups <= 64; groups *= 4) {
    for (int workers = std::max(16, groups); workers <= 1024; workers *= 2)
      all.push_back({"4a", "2d-tga", workers, groups});
  }
  for (int workers = 64; workers <= 1024; workers *= 4) {
    for (int groups = 4; groups <= 64; groups *= 2)
      all.push_back({"4b", "2d-tga", workers, groups});
  }
  return all;
}

class FiguresCommand final : public Command {
 public:
  std::string name() const override { return "figures-2d-tga"; }
  std::string help() const override {
    return "all-reduces of 16 to 1,024 workers in 4 to 64 groups, as in the figures of the paper "
           "on "
           "2D-TGA: simulated, beside its formulas";
  }
  // The same as those of `dunlin-schedule figures`.
  void set_defaults(Scenario& scenario) const override {
    scenario.steps = 1;
    scenario.network.rack = {std::chrono::microseconds(2), 6.4e9};
  }

  void declare(CLI::App& app) override {
    add_size(app, "--size", "SIZE", "S: bytes of the vector", size_,
             {kElement, std::size_t{1} << 40})
        ->default_str("64K");
    add_parsed(app, "--reduce-bandwidth", "RATE",
               "1 / C: rate at which a worker adds (default: unlimited, as the figures show "
               "communication alone)",
               parse_bandwidth, reduce_bandwidth_);
  }

  Status check(const Scenario& scenario) const override {
    const auto& network = scenario.network;
    if (network.ranks_per_host == 1 && network.hosts_per_rack == 0 && !network.hostility &&
        scenario.kills.empty())
      return Status::ok();
    return {Code::kInvalidArgument,
            "figures-2d-tga: the formulas cover one kind of link and no trouble"};
  }

  nlohmann::ordered_json options() const override {
    return {{"size", size_}, {"reduce_gbytes_per_s", reduce_bandwidth_ / 1e9}};
  }

  Result<Report> run(const Scenario& scenario) override {
    Report report;
    report.table = fmt::format("  {:<5} {:<13} {:>8} {:>7} {:>13} {:>13} {:>7}\n", "fig.",
                               "algorithm", "#workers", "#groups", "simulated", "formula", "ratio");
    auto rows = nlohmann::ordered_json::array();
    for (const Point& point : points()) {
      DUNLIN_ASSIGN(const Duration simulated, simulate(scenario, point, report));
      DUNLIN_ASSIGN(const double formula, predict(scenario, point));
      const double ratio = to_seconds(simulated) / formula;
      rows.push_back({{"figure", point.figure},
                      {"algorithm", point.algorithm},
                      {"workers", point.workers},
                      {"groups", point.groups},
                      {"simulated_us", to_seconds(simulated) * 1e6},
                      {"formula_us", formula * 1e6},
                      {"ratio", ratio}});
      report.table +=
          fmt::format("  {:<5} {:<13} {:>8} {:>7} {:>13} {:>13} {:>7.4f}\n", point.figure,
                      point.algorithm, point.workers, point.groups, format_duration(simulated),
                      format_duration(Duration(std::llround(formula * 1e9))), ratio);
    }
    report.facts.push_back({"rows", std::move(rows), ""});
    return report;
  }

 private:
  double gamma() const { return reduce_bandwidth_ == 0 ? 0 : 1 / reduce_bandwidth_; }

  Result<Duration> simulate(const Scenario& scenario, const Point& point, Report& total) const {
    Scenario one = scenario;
    one.network.ranks = point.workers;
    ScheduleOptions options;
    options.problem = {Collective::kAllReduce, point.workers, size_ / kElement, 0};
    DUNLIN_ASSIGN(options.algorithm,
                  collective::find_algorithm(Collective::kAllReduce, point.algorithm));
    DUNLIN_ASSIGN(const Grouping groups, Grouping::even(point.workers, point.groups));
    options.shape.groups = &groups;
    options.gamma = gamma();
    options.is_phantom = true;
    DUNLIN_ASSIGN(const auto world, ScheduleWorld::create(one, options));
    Report report;
    DUNLIN_TRY(world->run(report));
    total.add(report);
    return report.step.max();
  }

  Result<double> predict(const Scenario& scenario, const Point& point) const {
    collective::ClosedFormCase of;
    of.ranks = point.workers;
    of.groups = point.groups;
    of.bytes = static_cast<double>(size_);
    const auto& link = scenario.network.rack;
    of.between = {to_seconds(link.latency), link.bandwidth == 0 ? 0 : 1 / link.bandwidth};
    of.within = of.between;
    of.gamma = gamma();
    return collective::closed_form(point.algorithm, of);
  }

  std::size_t size_ = std::size_t{64} << 10;
  double reduce_bandwidth_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_figures_command() {
  return std::make_unique<FiguresCommand>();
}

}  // namespace dunlin::simulate
