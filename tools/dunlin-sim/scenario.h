// Scenario: the network of a run and what happens on it, as the command line says: what all
// subcommands have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/status.h"
#include "tools/dunlin-sim/units.h"
#include "transports/sim/network.h"

namespace dunlin::simulate {

struct Scenario {
  transport::sim::Options network;  // with the seed of the (first) run
  std::uint64_t steps = 20;         // of each rank
  Duration compute{};               // before each step
  std::vector<Kill> kills;
  std::uint64_t seeds = 1;   // runs, with one seed after the other
  std::uint64_t events = 0;  // most in a run: what takes more hangs
  bool checks = true;        // the data
  std::string json;          // empty: none; "-": standard output instead of the text

  // A network of this scenario, with all kills under way.
  Result<std::unique_ptr<transport::sim::Network>> make_network() const;
  Rank last_rank() const { return Rank(network.ranks - 1); }
};

// Declares the options on a subcommand; finish() is to be called after the parsing. Wrong values
// end the parsing with a CLI::ValidationError that names the option.
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

// What a JSON line says of the scenario.
nlohmann::ordered_json to_json(const Scenario& scenario);
// In a line, for people.
std::string describe(const Scenario& scenario);

}  // namespace dunlin::simulate
