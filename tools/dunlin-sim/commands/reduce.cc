// dunlin-sim reduce: stochastic reduce over a node graph, in each synchronization mode.
#include <fmt/format.h>

#include "collectives/graph/generators.h"
#include "collectives/stochastic/stochastic_reduce.h"
#include "tools/dunlin-sim/command.h"
#include "tools/dunlin-sim/commands/mixed_models.h"
#include "tools/dunlin-sim/network/world.h"
#include "tools/dunlin-sim/own_options.h"

namespace dunlin::simulate {
namespace {

using collective::Graph;
using collective::MixingMatrix;
using collective::SyncMode;
using transport::Awaited;
using Reduce = collective::StochasticReduce<float>;

struct Totals {
  std::uint64_t reduces = 0;
  std::uint64_t whole = 0;  // reduces with every input
  std::uint64_t torn = 0;
  std::uint64_t stale = 0;
};

class ReduceStepper final : public Stepper {
 public:
  // `expectation`: null when the result depends on timing.
  ReduceStepper(Reduce& reduce, Rank rank, std::size_t inputs, MixedModels* expectation,
                bool checks, Totals& totals)
      : reduce_(reduce),
        rank_(rank),
        inputs_(inputs),
        expectation_(expectation),
        checks_(checks),
        totals_(totals) {}

  Status start(std::uint64_t step) override {
    step_ = step;
    if (checks_) MixedModels::drift(reduce_.model(), rank_, step);
    return reduce_.start();
  }

  Status test() override {
    DUNLIN_TRY(reduce_.test());
    const collective::ReduceReport& report = reduce_.report();
    ++totals_.reduces;
    totals_.whole += report.inputs == inputs_ ? 1 : 0;
    totals_.torn += report.torn;
    totals_.stale += report.stale;
    return checks_ ? verify() : Status::ok();
  }

  std::vector<Awaited> awaited() const override { return reduce_.awaited(); }
  bool depends_on(Rank) const override { return true; }

 private:
  Status verify() const {
    return expectation_ == nullptr ? MixedModels::check_whole(reduce_.model(), step_)
                                   : expectation_->check(reduce_.model(), rank_, step_);
  }

  Reduce& reduce_;
  Rank rank_;
  std::size_t inputs_;
  MixedModels* expectation_;
  bool checks_;
  Totals& totals_;
  std::uint64_t step_ = 0;
};

class ReduceCommand final : public Command {
 public:
  std::string name() const override { return "reduce"; }
  std::string help() const override {
    return "stochastic reduce: each rank averages with its in-neighbors in a graph";
  }

  void declare(CLI::App& app) override {
    app.add_option("--graph", graph_,
                   "the node graph, whose edges go from sender to receiver ('dunlin-graph --help')")
        ->capture_default_str()
        ->group(kOwnOptions);
    add_choice(app, "--sync", mode_,
               {{"notify-ack", SyncMode::kNotifyAck},
                {"bsp", SyncMode::kBsp},
                {"async", SyncMode::kAsync}},
               "the synchronization mode")
        ->group(kOwnOptions);
    add_size(app, "--count", "N", "floats in the model, such as 1000, 64K, 1M", count_,
             {1, std::size_t{1} << 32})
        ->capture_default_str();
    app.add_option("--depth", depth_, "receive slots for each in-neighbor")
        ->check(CLI::Range(1u, 4096u))
        ->capture_default_str()
        ->group(kOwnOptions);
  }

  Status check(const Scenario& scenario) const override {
    DUNLIN_TRY(check_fabrics(scenario));
    auto graph = collective::make_graph(graph_, scenario.network.ranks);
    if (graph) return Status::ok();
    return {Code::kInvalidArgument, "--graph: " + std::string(graph.status().message())};
  }

  nlohmann::ordered_json options() const override {
    return {{"graph", graph_}, {"sync", to_string(mode_)}, {"count", count_}, {"depth", depth_}};
  }

  Result<Report> run(const Scenario& scenario) override {
    DUNLIN_ASSIGN(const Graph graph, collective::make_graph(graph_, scenario.network.ranks));
    DUNLIN_ASSIGN(const MixingMatrix mixing,
                  MixingMatrix::make(graph, collective::Weighting::kUniform));
    DUNLIN_ASSIGN(const auto world, World::create(scenario));
    DUNLIN_ASSIGN(const auto reduces, prepare(*world, graph));
    MixedModels expectation(mixing);
    Totals totals;
    std::vector<std::unique_ptr<Stepper>> steppers;
    for (std::size_t index = 0; index < reduces.size(); ++index) {
      DUNLIN_TRY(reduces[index]->connect());
      const Rank rank(static_cast<int>(index));
      const auto inputs = static_cast<std::size_t>(graph.in_degree(rank.value()));
      steppers.push_back(std::make_unique<ReduceStepper>(
          *reduces[index], rank, inputs, mode_ == SyncMode::kNotifyAck ? &expectation : nullptr,
          scenario.checks, totals));
    }
    Report report;
    DUNLIN_TRY(run_steps(*world, steppers, report));
    add_facts(report, totals);
    return report;
  }

 private:
  Result<std::vector<std::unique_ptr<Reduce>>> prepare(World& world, const Graph& graph) const {
    std::vector<std::unique_ptr<Reduce>> reduces;
    const Membership everybody = world.everybody();
    for (const Rank rank : everybody.members) {
      collective::ReduceOptions options;
      options.membership = everybody;
      DUNLIN_ASSIGN(options.neighborhood,
                    collective::neighborhood_of(graph, collective::Weighting::kUniform,
                                                everybody.members, rank));
      options.count = count_;
      options.mode = mode_;
      options.depth = depth_;
      DUNLIN_ASSIGN(auto reduce, Reduce::prepare(world.fabric(rank), std::move(options)));
      reduces.push_back(std::move(reduce));
    }
    return reduces;
  }

  void add_facts(Report& report, const Totals& totals) const {
    const double whole = totals.reduces == 0 ? 0
                                             : static_cast<double>(totals.whole) /
                                                   static_cast<double>(totals.reduces);
    report.facts.push_back({"whole_share", whole, ""});
    report.facts.push_back({"torn", totals.torn, ""});
    report.facts.push_back({"stale", totals.stale, ""});
    report.facts.push_back(
        {"reduces", totals.reduces,
         fmt::format("reduces       {}, {:.1f} % with every input; left out: {} torn, {} not new",
                     totals.reduces, 100 * whole, totals.torn, totals.stale)});
  }

  std::string graph_ = "root-expander";
  SyncMode mode_ = SyncMode::kNotifyAck;
  std::size_t count_ = 65536;
  std::uint32_t depth_ = 2;
};

}  // namespace

std::unique_ptr<Command> make_reduce_command() {
  return std::make_unique<ReduceCommand>();
}

}  // namespace dunlin::simulate
