// dunlin-sim barrier: repeated barriers of all ranks.
#include <fmt/format.h>

#include "collectives/barrier/barrier.h"
#include "tools/dunlin-sim/command.h"
#include "tools/dunlin-sim/network/world.h"

namespace dunlin::simulate {
namespace {

using collective::Barrier;
using transport::Awaited;

// How often each rank has entered. The guarantee of the barrier is checked with it.
using Entered = std::vector<std::uint64_t>;

class BarrierStepper final : public Stepper {
 public:
  BarrierStepper(Barrier& barrier, Rank rank, Entered& entered, bool checks)
      : barrier_(barrier), rank_(rank), entered_(entered), checks_(checks) {}

  Status start(std::uint64_t step) override {
    entered_[rank_.index()] = step;
    return barrier_.start();
  }
  Status test() override {
    DUNLIN_TRY(barrier_.test());
    if (!checks_) return Status::ok();
    for (std::size_t other = 0; other < entered_.size(); ++other) {
      if (entered_[other] >= entered_[rank_.index()]) continue;
      return {Code::kCorrupted, fmt::format("left barrier {} before rank {} had entered it",
                                            entered_[rank_.index()], other)};
    }
    return Status::ok();
  }
  std::vector<Awaited> awaited() const override { return barrier_.awaited(); }
  bool depends_on(Rank) const override { return true; }

 private:
  Barrier& barrier_;
  Rank rank_;
  Entered& entered_;
  bool checks_;
};

class BarrierCommand final : public Command {
 public:
  std::string name() const override { return "barrier"; }
  std::string help() const override { return "dissemination barrier of all ranks"; }
  void declare(CLI::App&) override {}
  Status check(const Scenario& scenario) const override { return check_fabrics(scenario); }
  nlohmann::ordered_json options() const override { return nlohmann::ordered_json::object(); }

  Result<Report> run(const Scenario& scenario) override {
    DUNLIN_ASSIGN(const auto world, World::create(scenario));
    std::vector<std::unique_ptr<Barrier>> barriers;
    std::vector<std::unique_ptr<Stepper>> steppers;
    Entered entered(static_cast<std::size_t>(world->size()));
    for (const Rank rank : world->everybody().members) {
      DUNLIN_ASSIGN(auto barrier,
                    Barrier::prepare(world->fabric(rank), "sim", world->everybody().members));
      barriers.push_back(std::move(barrier));
    }
    for (const Rank rank : world->everybody().members) {
      DUNLIN_TRY(barriers[rank.index()]->connect());
      steppers.push_back(std::make_unique<BarrierStepper>(*barriers[rank.index()], rank, entered,
                                                          scenario.checks));
    }
    Report report;
    DUNLIN_TRY(run_steps(*world, steppers, report));
    return report;
  }
};

}  // namespace

std::unique_ptr<Command> make_barrier_command() {
  return std::make_unique<BarrierCommand>();
}

}  // namespace dunlin::simulate
