// World: a job whose ranks are fabrics on a simulated network, and the loop that lets each of them
// take its steps.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/config.h"
#include "tools/dunlin-sim/report.h"
#include "tools/dunlin-sim/scenario.h"
#include "transports/fabric.h"
#include "transports/sim/network.h"

namespace dunlin::simulate {

// Each fabric has a board of a megabyte and a handful of descriptors, and knows all the others.
inline constexpr int kMostFabrics = 2048;
Status check_fabrics(const Scenario& scenario);

class World {
 public:
  static Result<std::unique_ptr<World>> create(const Scenario& scenario);

  const Scenario& scenario() const { return scenario_; }
  transport::sim::Network& network() { return *network_; }
  int size() const { return static_cast<int>(fabrics_.size()); }
  transport::Fabric& fabric(Rank rank) { return *fabrics_[rank.index()]; }
  Membership everybody() const;

 private:
  explicit World(const Scenario& scenario) : scenario_(scenario) {}
  Status start();

  const Scenario& scenario_;
  Config config_;
  std::unique_ptr<transport::sim::Network> network_;
  std::unique_ptr<InProcessJob> job_;
  std::vector<std::unique_ptr<Bootstrap>> bootstraps_;
  std::vector<std::unique_ptr<transport::Fabric>> fabrics_;
};

// What one rank does in each of its steps, as a state machine.
class Stepper {
 public:
  virtual ~Stepper() = default;
  // Step 1, 2, ...
  virtual Status start(std::uint64_t step) = 0;
  // kBusy until the step is done; called when something has come for the rank.
  virtual Status test() = 0;
  // When test() wants to be called though nothing has come; nothing: never.
  virtual std::optional<TimePoint> next_event() const { return std::nullopt; }
  // Who is waited for at this moment, and for what.
  virtual std::vector<transport::Awaited> awaited() const = 0;
  // Whether it can't go on without that rank.
  virtual bool depends_on(Rank gone) const = 0;
  // Its first step, from the beginning of the run.
  virtual Duration begins_after() const { return {}; }
};

// Runs the world's ranks, `steppers[rank]` each, until all have done their steps or ended because a
// rank was killed on whom they depend; takes the times into the report. An error names who waits
// for whom where nothing moves any more, or what a step returned.
Status run_steps(World& world, const std::vector<std::unique_ptr<Stepper>>& steppers,
                 Report& report);
// The same without fabrics.
Status run_steps(const Scenario& scenario, transport::sim::Network& network,
                 const std::vector<Stepper*>& steppers, Report& report);

}  // namespace dunlin::simulate
