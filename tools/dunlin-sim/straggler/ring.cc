// dunlin-sim straggler-ring: the ring all-reduce that does not wait for a late rank, on the network
// that the command line describes; with --figures, the experiment of its paper.
#include "collectives/straggler/straggler_ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tools/dunlin-sim/command.h"
#include "tools/dunlin-sim/network/world.h"
#include "tools/dunlin-sim/own_options.h"
#include "tools/dunlin-sim/straggler/figures.h"

namespace dunlin::simulate {
namespace {

using collective::LatenessMode;
using collective::RingStep;
using collective::StragglerOptions;
using collective::StragglerReport;
using transport::Awaited;
using Ring = collective::StragglerRing<float>;

struct Totals {
  std::uint64_t timeouts = 0;
  std::uint64_t skips = 0;
  std::uint64_t forwards = 0;
  Samples scattered;
};

class RingStepper final : public Stepper {
 public:
  RingStepper(Ring& ring, int ranks, bool checks, Totals& totals)
      : ring_(ring), ranks_(ranks), checks_(checks), totals_(totals) {}

  Status start(std::uint64_t step) override {
    // Small whole numbers, whose sums are exact in any order.
    mine_ = static_cast<float>(step % 64);
    if (checks_) std::fill(ring_.data().begin(), ring_.data().end(), mine_);
    return ring_.start();
  }

  Status test() override {
    DUNLIN_TRY(ring_.test());
    const StragglerReport& report = ring_.report();
    totals_.timeouts += report.timeouts;
    totals_.skips += report.skips;
    totals_.forwards += report.forwards;
    totals_.scattered.add(report.scattered);
    const float sum = mine_ * static_cast<float>(ranks_);
    const auto data = ring_.data();
    const auto wrong = std::find_if(data.begin(), data.end(), [&](float x) { return x != sum; });
    if (!checks_ || wrong == data.end()) return Status::ok();
    return {Code::kCorrupted, fmt::format("all-reduce {}: element {} is {}, not {}", report.step,
                                          wrong - data.begin(), *wrong, sum)};
  }

  std::optional<TimePoint> next_event() const override { return ring_.next_event(); }
  std::vector<Awaited> awaited() const override { return ring_.awaited(); }
  bool depends_on(Rank) const override { return true; }

 private:
  Ring& ring_;
  int ranks_;
  bool checks_;
  Totals& totals_;
  float mine_ = 0;
};

class StragglerRingCommand final : public Command {
 public:
  std::string name() const override { return "straggler-ring"; }
  std::string help() const override {
    return "ring all-reduce that does not wait for late ranks; --figures: the experiment of its "
           "paper";
  }

  void declare(CLI::App& app) override {
    app.add_flag("--figures", makes_figures_,
                 "reproduce figures 7 to 10 of the paper in its setting: 4 ranks, T of 3 us, 5 us "
                 "and 100 Gb/s; of the other options only those of JSON count")
        ->group(kOwnOptions);
    add_size(app, "--count", "N", "floats in the vector, such as 1000, 64K, 1M", count_,
             {1, std::size_t{1} << 32})
        ->capture_default_str();
    add_size(app, "--segment", "SIZE", "largest message", options_.segment_bytes,
             {64, std::size_t{1} << 31})
        ->capture_default_str();
    app.add_option("--depth", options_.depth, "receive slots for each in-neighbor")
        ->check(CLI::Range(1u, 4096u))
        ->capture_default_str()
        ->group(kOwnOptions);
    add_choice(app, "--lateness", options_.lateness.mode,
               {{"never", LatenessMode::kNever},
                {"fixed", LatenessMode::kFixed},
                {"adaptive", LatenessMode::kAdaptive}},
               "how a rank decides that another is late")
        ->group(kOwnOptions);
    app.add_option("--alpha", options_.lateness.alpha, "a step is late after alpha times T")
        ->capture_default_str()
        ->group(kOwnOptions);
    app.add_option("--step-time", step_time_,
                   "T, the time of a step: receiving, reducing and sending a segment, times the "
                   "straggler factor of the rank")
        ->capture_default_str()
        ->type_name("TIME")
        ->group(kOwnOptions);
    app.add_option("--transfer", transfer_, "T_trans of --lateness fixed")
        ->capture_default_str()
        ->type_name("TIME")
        ->group(kOwnOptions);
  }

  Status check(const Scenario& scenario) const override {
    DUNLIN_ASSIGN(const StragglerOptions options, ring_options(scenario));
    DUNLIN_TRY(collective::Lateness::check(options.lateness));
    return check_fabrics(scenario);
  }

  nlohmann::ordered_json options() const override {
    if (makes_figures_) {
      const StragglerSetting setting;
      return {{"ranks", setting.ranks},
              {"step_us", to_seconds(setting.step) * 1e6},
              {"transfer_us", to_seconds(setting.transfer()) * 1e6},
              {"chunk_bytes", setting.chunk_bytes}};
    }
    static const char* const kModes[] = {"never", "fixed", "adaptive"};
    return {{"count", count_},
            {"segment_bytes", options_.segment_bytes},
            {"depth", options_.depth},
            {"lateness", kModes[static_cast<std::size_t>(options_.lateness.mode)]},
            {"alpha", options_.lateness.alpha},
            {"step_time", step_time_}};
  }

  Result<Report> run(const Scenario& scenario) override {
    return makes_figures_ ? run_figures() : run_ring(scenario);
  }

 private:
  static Result<Report> run_figures() {
    DUNLIN_ASSIGN(const StragglerFigures figures, make_straggler_figures(StragglerSetting()));
    Report report;
    report.table = to_text(figures);
    report.rows = to_json(figures);
    return report;
  }

  Result<Report> run_ring(const Scenario& scenario) const {
    DUNLIN_ASSIGN(const auto world, World::create(scenario));
    DUNLIN_ASSIGN(StragglerOptions options, ring_options(scenario));
    options.membership = world->everybody();
    std::vector<std::unique_ptr<Ring>> rings;
    for (const Rank rank : options.membership.members) {
      DUNLIN_ASSIGN(auto ring, Ring::prepare(world->fabric(rank), options));
      rings.push_back(std::move(ring));
    }
    Totals totals;
    std::vector<std::unique_ptr<Stepper>> steppers;
    for (auto& ring : rings) {
      DUNLIN_TRY(ring->connect());
      steppers.push_back(
          std::make_unique<RingStepper>(*ring, world->size(), scenario.checks, totals));
    }
    Report report;
    DUNLIN_TRY(run_steps(*world, steppers, report));
    report.facts.push_back({"timeouts", totals.timeouts, ""});
    report.facts.push_back({"skips", totals.skips, ""});
    report.facts.push_back(
        {"forwards", totals.forwards,
         fmt::format("late          {} timeouts, {} sent past the successor, {} passed on later",
                     totals.timeouts, totals.skips, totals.forwards)});
    report.facts.push_back({"scattered_us",
                            {{"p50", to_seconds(totals.scattered.quantile(0.5)) * 1e6},
                             {"max", to_seconds(totals.scattered.max()) * 1e6}},
                            fmt::format("scattered     p50 {}, max {}",
                                        format_duration(totals.scattered.quantile(0.5)),
                                        format_duration(totals.scattered.max()))});
    return report;
  }

  Result<StragglerOptions> ring_options(const Scenario& scenario) const {
    StragglerOptions options = options_;
    options.count = count_;
    DUNLIN_ASSIGN(const Duration step, parse_duration(step_time_));
    options.lateness.step = step;
    DUNLIN_ASSIGN(options.lateness.transfer, parse_duration(transfer_));
    // A simulated step has no jitter, so no margin is needed.
    options.lateness.floor = {};
    std::vector<double> factors(static_cast<std::size_t>(scenario.network.ranks), 1.0);
    for (const auto& straggler : scenario.network.stragglers)
      factors[straggler.rank.index()] = straggler.factor;
    options.step_time = [step, factors](const RingStep& of) {
      return Duration(
          static_cast<Duration::rep>(static_cast<double>(step.count()) * factors[of.member]));
    };
    return options;
  }

  StragglerOptions options_;
  std::size_t count_ = 65536;
  std::string step_time_ = "3us";
  std::string transfer_ = "10us";
  bool makes_figures_ = false;
};

}  // namespace

std::unique_ptr<Command> make_straggler_ring_command() {
  return std::make_unique<StragglerRingCommand>();
}

}  // namespace dunlin::simulate
