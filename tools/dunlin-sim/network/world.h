// World: a job whose ranks are fabrics on a simulated network, and the loop in which each rank
// takes its steps.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/config.h"
#include "tools/dunlin-sim/network/scenario.h"
#include "tools/dunlin-sim/report.h"
#include "transports/fabric.h"
#include "transports/sim/network.h"

namespace dunlin::simulate {

// The limit has a reason: each fabric has a notification board of 1 MiB, some descriptors, and an
// entry for every other fabric.
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

// The work of one rank in each of its steps, as a state machine.
class Stepper {
 public:
  virtual ~Stepper() = default;
  // Starts step 1, 2, ...
  virtual Status start(std::uint64_t step) = 0;
  // Returns kBusy until the step is done. It is called when something has arrived for the rank.
  virtual Status test() = 0;
  // The time at which test() must be called even if nothing arrives; nullopt: there is none.
  virtual std::optional<TimePoint> next_event() const { return std::nullopt; }
  // The peers that it waits for at this moment, and for what.
  virtual std::vector<transport::Awaited> awaited() const = 0;
  // Whether it cannot continue without that rank.
  virtual bool depends_on(Rank gone) const = 0;
  // The time of its first step, counted from the beginning of the run.
  virtual Duration begins_after() const { return {}; }
};

// Runs the ranks of the world, with `steppers[rank]` each, until all have done their steps or have
// ended because a rank on which they depend was killed. Adds the times to the report. An error is
// what a step returned, or, when no events are left, says which ranks wait for which.
Status run_steps(World& world, const std::vector<std::unique_ptr<Stepper>>& steppers,
                 Report& report);
// The same for ranks without fabrics.
Status run_steps(const Scenario& scenario, transport::sim::Network& network,
                 const std::vector<Stepper*>& steppers, Report& report);

}  // namespace dunlin::simulate
