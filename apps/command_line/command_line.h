// What the command lines of all programs have in common: --version, the layout of --help, the
// message about wrong usage, options that name one of several choices, and where JSON lines go.
// The programs of tools/ and tests/ use it as well.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace dunlin {

// The exit code of a program that was called in a wrong way.
inline constexpr int kWrongUsage = 2;

// To be called first in a program. Standard streams that are closed are opened to /dev/null. From
// now on, a program that runs out of memory prints that, and ends with exit code 1.
//
// Parses the command line, then calls `finish`, which may throw a CLI::ParseError as well. Returns
// nothing when the program is to go on; otherwise the exit code: --help and --version give 0, wrong
// usage gives kWrongUsage. The text for either has been printed.
//
// The help text names the value of an option after its type_name(); without one, after its kind
// ("N") or after the option's own name ("--graph GRAPH"). The default value stands in parentheses.
std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv,
                                      const std::function<void()>& finish = {});

// The same for callers that want the exit code in an argument: returns whether the program is to go
// on.
bool parse_command_line(CLI::App& app, int argc, const char* const* argv,
                        const std::function<void()>& finish, int& exit_code);

// The names and what they stand for.
template <typename Value>
using Choices = std::vector<std::pair<std::string, Value>>;

// Adds an option that takes one of the choices. The value that `value` has now is its default.
template <typename Value>
CLI::Option* add_choice(CLI::App& app, const std::string& option, Value& value,
                        const std::type_identity_t<Choices<Value>>& choices,
                        const std::string& help) {
  std::string names;
  std::string preset;
  for (const auto& [name, meaning] : choices) {
    names += (names.empty() ? "" : "|") + name;
    if (meaning == value) preset = name;
  }
  const auto take = [option, choices, names, &value](const std::string& text) {
    for (const auto& [name, meaning] : choices) {
      if (name == text) {
        value = meaning;
        return;
      }
    }
    throw CLI::ValidationError(option, fmt::format("'{}' is not one of {}", text, names));
  };
  return app.add_option_function<std::string>(option, take, help)
      ->type_name(names)
      ->default_str(preset);
}

// The same for an option whose value is the name itself.
CLI::Option* add_choice(CLI::App& app, const std::string& option, std::string& value,
                        const std::vector<std::string>& names, const std::string& help);

// An entry of a table in a help text: a name, and what it means beside or below it, in at most 100
// columns.
std::string help_entry(const std::string& name, const std::string& meaning);

// Adds --json and --json-out FILE. With --json, which prints JSON lines on standard output instead
// of text, `target` becomes "-". With --json-out, which writes them to a file beside the text, it
// becomes the file's name. Without either, it stays empty. `group`: the heading in the help text.
void add_json_options(CLI::App& app, std::string& target, const std::string& group = "Options");

}  // namespace dunlin
