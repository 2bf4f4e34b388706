// Command: a subcommand of dunlin-sim: one file each, listed in main.cc.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/status.h"
#include "tools/dunlin-sim/report.h"
#include "tools/dunlin-sim/scenario.h"

namespace dunlin::simulate {

class Command {
 public:
  virtual ~Command() = default;
  virtual std::string name() const = 0;
  virtual std::string help() const = 0;
  // Its own options, beside those of the scenario.
  virtual void declare(CLI::App& app) = 0;
  // kInvalidArgument: wrong usage, which is said before anything runs.
  virtual Status check(const Scenario& scenario) const = 0;
  // Its own options, for JSON lines.
  virtual nlohmann::ordered_json options() const = 0;
  // One run. An error is a failure of what runs: wrong data, a hang, an unexpected end.
  virtual Result<Report> run(const Scenario& scenario) = 0;
};

std::unique_ptr<Command> make_channel_command();
std::unique_ptr<Command> make_barrier_command();
std::unique_ptr<Command> make_reduce_command();
std::unique_ptr<Command> make_straggler_ring_command();

// The heading of the options that a command has for itself.
inline constexpr const char* kOwnOptions = "The protocol";

}  // namespace dunlin::simulate
