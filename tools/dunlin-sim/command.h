// Command: a subcommand of dunlin-sim. Each has one file and is listed in main.cc.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "collectives/schedule/problem.h"
#include "runtime/status.h"
#include "tools/dunlin-sim/network/scenario.h"
#include "tools/dunlin-sim/report.h"

namespace CLI {
class App;
}

namespace dunlin::simulate {

class Command {
 public:
  virtual ~Command() = default;
  virtual std::string name() const = 0;
  virtual std::string help() const = 0;
  // Sets defaults that suit this command better than the usual ones.
  virtual void set_defaults(Scenario&) const {}
  // Declares the options that it has in addition to those of the scenario.
  virtual void declare(CLI::App& app) = 0;
  // Returns kInvalidArgument for wrong usage. It is called before anything runs.
  virtual Status check(const Scenario& scenario) const = 0;
  // Its own options, as members of the JSON lines.
  virtual nlohmann::ordered_json options() const = 0;
  // Makes one run. An error is a failure of the protocol: wrong data, a hang, an unexpected end.
  virtual Result<Report> run(const Scenario& scenario) = 0;
};

std::unique_ptr<Command> make_channel_command();
std::unique_ptr<Command> make_barrier_command();
std::unique_ptr<Command> make_reduce_command();
std::unique_ptr<Command> make_neighbor_command();
std::unique_ptr<Command> make_straggler_ring_command();
std::unique_ptr<Command> make_collective_command(collective::Collective collective);
std::unique_ptr<Command> make_figures_command();
std::unique_ptr<Command> make_groups_command();

}  // namespace dunlin::simulate
