// dunlin-perf under dunlin-run, over shm, and the figures that it prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/command.h"

namespace dunlin::testing {

using Json = nlohmann::json;

CommandResult perf(int ranks, const std::vector<std::string>& arguments);
std::vector<Json> json_lines(const std::string& text);
// Runs a benchmark with --json -, which has to succeed.
std::vector<Json> measure(int ranks, std::vector<std::string> arguments);

}  // namespace dunlin::testing
