// Runs dunlin-perf under dunlin-run, over shm, and returns the figures that it prints.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/support/command.h"
#include "tests/tools/json_lines.h"

namespace dunlin::testing {

using Variables = std::map<std::string, std::string>;

CommandResult perf(int ranks, const std::vector<std::string>& arguments, Variables variables = {});
// Runs a benchmark with --json, which must succeed.
std::vector<Json> measure(int ranks, std::vector<std::string> arguments,
                          const Variables& variables = {});

}  // namespace dunlin::testing
