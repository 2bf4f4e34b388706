// dunlin-sim all-reduce, broadcast, ...: runs the schedules of the collectives on the executor that
// runs them on real fabrics.
#include <fmt/format.h>

#include <limits>

#include "collectives/schedule/choose.h"
#include "runtime/print.h"
#include "tools/dunlin-sim/command.h"
#include "tools/dunlin-sim/network/schedule_world.h"
#include "tools/dunlin-sim/own_options.h"
#include "tools/lib/grid.h"

namespace dunlin::simulate {
namespace {

using collective::Algorithm;
using collective::Collective;
using collective::Grid;
using collective::Grouping;
using collective::Problem;

constexpr std::size_t kElement = sizeof(float);

class CollectiveCommand final : public Command {
 public:
  explicit CollectiveCommand(Collective collective) : collective_(collective) {}

  // The name `reduce` belongs to the stochastic reduce.
  std::string name() const override {
    return collective_ == Collective::kReduce ? "reduce-to-root" : to_string(collective_);
  }
  std::string help() const override {
    return fmt::format("the collective {}, by any of its algorithms", to_string(collective_));
  }
  void set_defaults(Scenario& scenario) const override { scenario.steps = 1; }

  void declare(CLI::App& app) override {
    app.add_option("--algorithm", algorithm_, algorithm_help())->group(kOwnOptions);
    auto* const size = add_size(app, "--size", "SIZE", size_help(), size_, {.high = kMostBytes})
                           ->default_str("1M");
    add_size(app, "--count", "N", count_help(), count_, {.high = kMostBytes / kElement})
        ->excludes(size);
    if (Problem{collective_}.is_rooted()) {
      app.add_option("--root", root_, "the root rank")
          ->type_name("RANK")
          ->capture_default_str()
          ->group(kOwnOptions);
    }
    app.add_option("--groups", groups_,
                   "number of groups of neighboring ranks (default: the hosts)")
        ->check(CLI::PositiveNumber)
        ->group(kOwnOptions);
    add_parsed(app, "--grid", "ROWSxCOLUMNS",
               "arrangement of the ranks or of the groups (default: as square as possible)",
               tools::parse_grid, grid_);
    add_size(app, "--segment", "SIZE", "largest message; longer ones are cut and pipelined",
             segment_, {.low = 1});
    add_size(app, "--scratch", "SIZE", "largest scratch memory; what needs more goes in slices",
             scratch_, {.low = 1});
    add_parsed(app, "--reduce-bandwidth", "RATE",
               "rate at which a rank adds or copies, which occupies it (default: unlimited)",
               parse_bandwidth, reduce_bandwidth_);
    add_parsed(app, "--skew", "TIME", "each rank begins at a random time between 0 and this",
               parse_duration, skew_);
    auto* const phantom =
        app.add_flag("--phantom", phantom_,
                     "use memory without bytes and check nothing (default: when all memory "
                     "together exceeds 1 GiB)")
            ->group(kOwnOptions);
    app.add_flag("--check", check_, "use real memory, and check the results")
        ->excludes(phantom)
        ->group(kOwnOptions);
  }

  Status check(const Scenario& scenario) const override {
    std::optional<Grouping> groups;
    DUNLIN_ASSIGN(const ScheduleOptions options, make_options(scenario, groups));
    if (options.problem.root < 0 || options.problem.root >= options.problem.size) {
      return {Code::kInvalidArgument,
              fmt::format("--root {} in a job of {} ranks", root_, options.problem.size)};
    }
    if (options.algorithm->needs_mapped_peers && !is_one_host(scenario)) {
      return {Code::kInvalidArgument,
              fmt::format("'{}' needs all ranks on one host: --ranks-per-host {}",
                          options.algorithm->name, scenario.network.ranks)};
    }
    return options.algorithm->check(options.problem, options.shape);
  }

  nlohmann::ordered_json options() const override {
    nlohmann::ordered_json json{{"reduce_gbytes_per_s", reduce_bandwidth_ / 1e9},
                                {"skew_us", static_cast<double>(skew_.count()) / 1e3},
                                {"segment_bytes", segment_},
                                {"scratch_bytes", scratch_}};
    if (Problem{collective_}.is_rooted()) json["root"] = root_;
    return json;
  }

  Result<Report> run(const Scenario& scenario) override {
    std::optional<Grouping> groups;
    DUNLIN_ASSIGN(const ScheduleOptions options, make_options(scenario, groups));
    if (!has_warned_) warn_of_long_run(scenario, options);
    DUNLIN_ASSIGN(const auto world, ScheduleWorld::create(scenario, options));
    Report report;
    DUNLIN_TRY(world->run(report));
    add_facts(report, *world, options);
    return report;
  }

 private:
  static constexpr std::size_t kMostBytes = std::size_t{1} << 40;
  // What a step of a program costs to simulate, by order of magnitude.
  static constexpr double kSecondsPerStep = 1e-6;
  static constexpr double kBytesPerStep = 50;
  // A run with more steps than this is announced.
  static constexpr double kManySteps = 1e7;
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  std::string algorithm_help() const {
    std::string names;
    for (const Algorithm& algorithm : collective::algorithms()) {
      if (algorithm.collective != collective_) continue;
      names += fmt::format("{}{}", names.empty() ? "" : ", ", algorithm.name);
    }
    return names + " (default: what a communicator chooses without tuning)";
  }
  bool has_parts() const {
    return collective_ == Collective::kReduceScatter || collective_ == Collective::kAllGather ||
           collective_ == Collective::kAllToAll;
  }
  const char* size_help() const {
    return has_parts() ? "bytes of the whole vector, the parts of all ranks together"
                       : "bytes of the vector";
  }
  const char* count_help() const {
    return has_parts() ? "floats of each rank's part, instead of --size"
                       : "floats of the vector, instead of --size";
  }

  // The steps of all ranks' programs together, judged by the program of rank 0.
  static double program_steps(const Algorithm& algorithm, const ScheduleOptions& options) {
    if (!algorithm.check(options.problem, options.shape).is_ok()) return kNever;
    const auto program = collective::generate(algorithm, options.problem, options.shape, 0);
    if (!program) return kNever;
    return static_cast<double>(program->steps.size()) * options.problem.size;
  }

  // Says once on standard error how long the runs will take, if that is long, and which algorithm
  // has the fewest steps.
  void warn_of_long_run(const Scenario& scenario, const ScheduleOptions& options) {
    has_warned_ = true;
    const double steps = program_steps(*options.algorithm, options);
    const double all_steps = steps * static_cast<double>(scenario.steps);
    if (all_steps < kManySteps || steps == kNever) return;
    std::string text =
        fmt::format("{} of {} ranks by {}: {:.0f} million steps, about {:.0f} s and {} of memory",
                    name(), options.problem.size, options.algorithm->name, all_steps / 1e6,
                    all_steps * kSecondsPerStep, format_bytes(steps * kBytesPerStep));
    const Algorithm* shortest = options.algorithm;
    double fewest = steps;
    for (const Algorithm& other : collective::algorithms()) {
      if (other.collective != collective_) continue;
      if (other.needs_mapped_peers && !is_one_host(scenario)) continue;
      if (const double its = program_steps(other, options); its < fewest) {
        fewest = its;
        shortest = &other;
      }
    }
    if (shortest != options.algorithm) {
      text += fmt::format("; --algorithm {} takes {:.1f} % of the steps", shortest->name,
                          100 * fewest / steps);
    }
    print_error(fmt::format("dunlin-sim: {}\n", text));
  }

  static bool is_one_host(const Scenario& scenario) {
    return scenario.network.host_of(scenario.last_rank()) == 0;
  }

  static collective::Connections connections(const Scenario& scenario, const Grouping& groups) {
    const double nic = scenario.network.rack.bandwidth;
    const double memory = scenario.network.host.bandwidth;
    auto connections = collective::Connections::among(groups);
    connections.is_all_mapped = is_one_host(scenario);
    connections.shares_fast_nic =
        scenario.network.shares_nic && (nic == 0 || (memory > 0 && nic >= memory));
    return connections;
  }

  // The shape of the result refers to `groups`.
  Result<ScheduleOptions> make_options(const Scenario& scenario,
                                       std::optional<Grouping>& groups) const {
    ScheduleOptions options;
    const int ranks = scenario.network.ranks;
    const std::size_t parts = has_parts() ? static_cast<std::size_t>(ranks) : 1;
    options.problem = {collective_, ranks, count_.value_or(size_ / kElement / parts), root_};
    if (groups_ > 0) {
      DUNLIN_ASSIGN(groups, Grouping::even(ranks, groups_));
    } else {
      std::vector<int> host_of;
      for (int rank = 0; rank < ranks; ++rank)
        host_of.push_back(scenario.network.host_of(Rank(rank)));
      groups = Grouping::of(host_of);
    }
    options.shape.groups = &*groups;
    const collective::Connections connected = connections(scenario, *groups);
    options.shape.hosts = connected.hosts;
    options.shape.grid = grid_;
    if (algorithm_.empty()) {
      options.algorithm = collective::choose_algorithm(options.problem, kElement, connected);
    } else {
      DUNLIN_ASSIGN(options.algorithm, collective::find_algorithm(collective_, algorithm_));
    }
    if (segment_ > 0) options.shape.segment = std::max<std::size_t>(1, segment_ / kElement);
    if (scratch_ > 0) options.shape.scratch = scratch_ / kElement;
    options.gamma = reduce_bandwidth_ == 0 ? 0 : 1 / reduce_bandwidth_;
    options.skew = skew_;
    if (phantom_ || check_) options.is_phantom = phantom_;
    return options;
  }

  static void add_facts(Report& report, const ScheduleWorld& world,
                        const ScheduleOptions& options) {
    const Problem& problem = options.problem;
    std::string shape;
    if (options.algorithm->needs_groups) {
      const int groups = options.shape.groups->groups();
      shape = fmt::format(", {} groups", groups);
      report.facts.push_back({"groups", groups, ""});
    }
    if (const auto grid = grid_of(options)) {
      shape += fmt::format(", grid {} x {}", grid->rows, grid->columns);
      report.facts.push_back({"grid", fmt::format("{}x{}", grid->rows, grid->columns), ""});
    }
    const double bytes =
        static_cast<double>(std::max(problem.input_count(), problem.output_count()) * kElement);
    report.facts.push_back(
        {"algorithm", options.algorithm->name,
         fmt::format("algorithm     {}{}, vector of {}, {}", options.algorithm->name, shape,
                     format_bytes(bytes), world.is_phantom() ? "phantom memory" : "real memory")});
    report.facts.push_back({"count", problem.count, ""});
    report.facts.push_back({"is_phantom", world.is_phantom(), ""});
    report.facts.push_back(
        {"program",
         {{"steps", world.most_program_steps()}, {"scratch", world.most_scratch() * kElement}},
         fmt::format("programs      up to {} steps, {} of scratch", world.most_program_steps(),
                     format_bytes(static_cast<double>(world.most_scratch() * kElement)))});
    report.facts.push_back({"by_step", by_step(world), ""});
  }

  static std::optional<Grid> grid_of(const ScheduleOptions& options) {
    const bool is_of_groups = options.algorithm->name == "2d-tga";
    if (!is_of_groups && options.algorithm->name != "torus-2d" &&
        options.algorithm->name != "mesh-2d")
      return std::nullopt;
    if (options.shape.grid.rows > 0) return options.shape.grid;
    if (options.algorithm->name == "torus-2d") return options.shape.torus(options.problem.size);
    return Grid::squarest(is_of_groups ? options.shape.groups->groups() : options.problem.size);
  }

  static nlohmann::ordered_json by_step(const ScheduleWorld& world) {
    const auto us = [](Duration duration) { return static_cast<double>(duration.count()) / 1e3; };
    auto json = nlohmann::ordered_json::array();
    for (const StepFigures& step : world.steps()) {
      if (step.took.count() == 0) continue;  // all ranks ended before, because of a death
      json.push_back({{"begin_us", us(step.first_start.time_since_epoch())},
                      {"end_us", us(step.last_end.time_since_epoch())},
                      {"done", step.took.count()},
                      {"p50_us", us(step.took.quantile(0.5))},
                      {"max_us", us(step.took.max())}});
    }
    return json;
  }

  Collective collective_;
  std::string algorithm_;
  std::size_t size_ = std::size_t{1} << 20;
  std::optional<std::size_t> count_;
  int root_ = 0;
  int groups_ = 0;  // 0: the hosts
  Grid grid_{0, 0};
  std::size_t segment_ = 0;
  std::size_t scratch_ = 0;
  double reduce_bandwidth_ = 0;
  Duration skew_{};
  bool phantom_ = false;
  bool check_ = false;
  bool has_warned_ = false;
};

}  // namespace

std::unique_ptr<Command> make_collective_command(Collective collective) {
  return std::make_unique<CollectiveCommand>(collective);
}

}  // namespace dunlin::simulate
