// dunlin-sim neighbor-all-reduce: averages with the in-neighbors in a graph, by NeighborExchange.
#include <fmt/format.h>

#include "collectives/graph/generators.h"
#include "collectives/neighbor/neighbor_exchange.h"
#include "tools/dunlin-sim/command.h"
#include "tools/dunlin-sim/commands/mixed_models.h"
#include "tools/dunlin-sim/network/world.h"
#include "tools/dunlin-sim/own_options.h"

namespace dunlin::simulate {
namespace {

using collective::Graph;
using collective::MixingMatrix;
using collective::NeighborCall;
using collective::NeighborExchange;
using collective::NeighborRequest;

class NeighborStepper final : public Stepper {
 public:
  // `expectation` is null if nothing is to be checked.
  NeighborStepper(std::unique_ptr<NeighborExchange> exchange, transport::Fabric& fabric,
                  const collective::Neighborhood& neighborhood, std::size_t count,
                  MixedModels* expectation)
      : exchange_(std::move(exchange)),
        fabric_(fabric),
        rank_(fabric.rank()),
        model_(count),
        expectation_(expectation) {
    set_neighbors(call_, neighborhood);
    call_.input = call_.output = model_.data();
    call_.count = count;
  }

  Status start(std::uint64_t step) override {
    step_ = step;
    if (expectation_ != nullptr) MixedModels::drift(model_, rank_, step);
    DUNLIN_ASSIGN(request_, exchange_->start(call_));
    return Status::ok();
  }

  Status test() override {
    DUNLIN_TRY(exchange_->test(request_));
    return expectation_ == nullptr ? Status::ok() : expectation_->check(model_, rank_, step_);
  }

  // Neighbors meet in the first step, by way of the bootstrap, which is no event of the network.
  std::optional<TimePoint> next_event() const override {
    if (step_ > 1) return std::nullopt;
    return fabric_.clock().now() + kMeetingPause;
  }
  std::vector<transport::Awaited> awaited() const override { return exchange_->awaited(request_); }
  bool depends_on(Rank) const override { return true; }

 private:
  static constexpr Duration kMeetingPause = std::chrono::microseconds(1);

  std::unique_ptr<NeighborExchange> exchange_;
  transport::Fabric& fabric_;
  Rank rank_;
  std::vector<float> model_;
  MixedModels* expectation_;
  NeighborCall call_;
  NeighborRequest request_;
  std::uint64_t step_ = 0;
};

class NeighborCommand final : public Command {
 public:
  std::string name() const override { return "neighbor-all-reduce"; }
  std::string help() const override {
    return "neighbor averages: each rank averages with its in-neighbors in a graph";
  }

  void declare(CLI::App& app) override {
    app.add_option("--graph", graph_,
                   "the node graph, whose edges go from sender to receiver ('dunlin-graph --help')")
        ->capture_default_str()
        ->group(kOwnOptions);
    add_size(app, "--count", "N", "floats in the vector, such as 1000, 64K, 1M", count_,
             {1, std::size_t{1} << 32})
        ->capture_default_str();
  }

  Status check(const Scenario& scenario) const override {
    DUNLIN_TRY(check_fabrics(scenario));
    auto graph = collective::make_graph(graph_, scenario.network.ranks);
    if (graph) return Status::ok();
    return {Code::kInvalidArgument, "--graph: " + std::string(graph.status().message())};
  }

  nlohmann::ordered_json options() const override { return {{"graph", graph_}, {"count", count_}}; }

  Result<Report> run(const Scenario& scenario) override {
    DUNLIN_ASSIGN(const Graph graph, collective::make_graph(graph_, scenario.network.ranks));
    constexpr auto kWeighting = collective::Weighting::kUniform;
    DUNLIN_ASSIGN(const MixingMatrix mixing, MixingMatrix::make(graph, kWeighting));
    DUNLIN_ASSIGN(const auto world, World::create(scenario));
    MixedModels expectation(mixing);
    std::vector<std::unique_ptr<Stepper>> steppers;
    const std::vector<Rank> ranks = world->everybody().members;
    for (const Rank rank : ranks) {
      DUNLIN_ASSIGN(auto exchange, NeighborExchange::create(world->fabric(rank), {}));
      DUNLIN_ASSIGN(const auto neighborhood,
                    collective::neighborhood_of(graph, kWeighting, ranks, rank));
      steppers.push_back(
          std::make_unique<NeighborStepper>(std::move(exchange), world->fabric(rank), neighborhood,
                                            count_, scenario.checks ? &expectation : nullptr));
    }
    Report report;
    DUNLIN_TRY(run_steps(*world, steppers, report));
    return report;
  }

 private:
  std::string graph_ = "ring";
  std::size_t count_ = 65536;
};

}  // namespace

std::unique_ptr<Command> make_neighbor_command() {
  return std::make_unique<NeighborCommand>();
}

}  // namespace dunlin::simulate
