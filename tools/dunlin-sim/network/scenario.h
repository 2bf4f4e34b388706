// Scenario: the network of a run and what happens on it. Its options are common to all subcommands.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/status.h"
#include "tools/dunlin-sim/network/units.h"
#include "transports/sim/network.h"

namespace CLI {
class App;
}

namespace dunlin::simulate {

struct Scenario {
  transport::sim::Options network;  // with the seed of the (first) run
  std::uint64_t steps = 20;         // of each rank
  Duration compute{};               // work of a rank before each step
  std::vector<Kill> kills;
  std::uint64_t seeds = 1;   // runs, each with the next seed
  std::uint64_t events = 0;  // a run with more events is taken for one that hangs
  bool checks = true;        // whether received data are verified
  std::string json;          // as tools::Output::open() takes it

  // Creates the network, with all deaths scheduled.
  Result<std::unique_ptr<transport::sim::Network>> make_network() const;
  Rank last_rank() const { return Rank(network.ranks - 1); }
};

// Declares the options on a subcommand. finish() must be called after the parsing. Wrong values end
// the parsing with a CLI::ValidationError that names the option.
class ScenarioOptions {
 public:
  explicit ScenarioOptions(Scenario& scenario) : scenario_(scenario) {}
  void declare(CLI::App& app);
  void finish(const CLI::App& app);

 private:
  void declare_run(CLI::App& app);
  void declare_network(CLI::App& app);
  void declare_trouble(CLI::App& app);

  Scenario& scenario_;
  bool is_hostile_ = false;
};

// The members of a JSON line that describe the scenario.
nlohmann::ordered_json to_json(const Scenario& scenario);
// One line of text for people.
std::string describe(const Scenario& scenario);

}  // namespace dunlin::simulate
