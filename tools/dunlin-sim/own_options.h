// What the subcommands use to declare their own options.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "apps/command_line/command_line.h"
#include "runtime/status.h"
#include "runtime/units.h"

namespace dunlin::simulate {

// The heading of a subcommand's own options.
inline constexpr const char* kOwnOptions = "The protocol";

// Adds an option under that heading, which `parse` reads. `value_name` stands for its value in the
// help text.
template <typename Value>
CLI::Option* add_parsed(CLI::App& app, const char* name, const char* value_name, const char* help,
                        Result<Value> (*parse)(std::string_view), Value& into) {
  return app
      .add_option_function<std::string>(
          name,
          [name, parse, &into](const std::string& text) {
            auto value = parse(text);
            if (!value) throw CLI::ValidationError(name, std::string(value.status().message()));
            into = *value;
          },
          help)
      ->type_name(value_name)
      ->group(kOwnOptions);
}

// Adds an option that takes a number of bytes or elements, such as 1000, 64K, 1M.
template <typename Value>
CLI::Option* add_size(CLI::App& app, const char* name, const char* value_name, const char* help,
                      Value& into, const SizeLimits& limits) {
  return app.add_option(name, into, help)
      ->transform(CLI::Validator(size_option(limits), ""))
      ->type_name(value_name)
      ->group(kOwnOptions);
}

}  // namespace dunlin::simulate
