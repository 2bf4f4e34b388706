// Command: a subcommand of dunlin-sim: one file each, listed in main.cc.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "collectives/schedule/problem.h"
#include "runtime/status.h"
#include "tools/dunlin-sim/report.h"
#include "tools/dunlin-sim/scenario.h"

namespace dunlin::simulate {

class Command {
 public:
  virtual ~Command() = default;
  virtual std::string name() const = 0;
  virtual std::string help() const = 0;
  // Where others than usual suit it.
  virtual void set_defaults(Scenario&) const {}
  // Its own options, beside those of the scenario.
  virtual void declare(CLI::App& app) = 0;
  // kInvalidArgument: wrong usage, which is said before anything runs.
  virtual Status check(const Scenario& scenario) const = 0;
  // Its own options, for JSON lines.
  virtual nlohmann::ordered_json options() const = 0;
  // One run. An error is a failure of what runs: wrong data, a hang, an unexpected end.
  virtual Result<Report> run(const Scenario& scenario) = 0;
};

// The heading of the options that a command has for itself.
inline constexpr const char* kOwnOptions = "The protocol";
// An option under it that `parse` reads.
template <typename Value>
void add_parsed(CLI::App& app, const char* name, const char* help,
                Result<Value> (*parse)(std::string_view), Value& into) {
  app.add_option_function<std::string>(
         name,
         [name, parse, &into](const std::string& text) {
           auto value = parse(text);
           if (!value) throw CLI::ValidationError(name, std::string(value.status().message()));
           into = *value;
         },
         help)
      ->type_name("")
      ->group(kOwnOptions);
}

std::unique_ptr<Command> make_channel_command();
std::unique_ptr<Command> make_barrier_command();
std::unique_ptr<Command> make_reduce_command();
std::unique_ptr<Command> make_straggler_ring_command();
std::unique_ptr<Command> make_collective_command(collective::Collective collective);
std::unique_ptr<Command> make_figures_command();
std::unique_ptr<Command> make_groups_command();

}  // namespace dunlin::simulate
