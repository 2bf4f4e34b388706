// dunlin-perf under dunlin-run, over shm, and the figures that it prints.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/command.h"

namespace dunlin::testing {

using Json = nlohmann::json;

inline CommandResult perf(int ranks, const std::vector<std::string>& arguments) {
  std::vector<std::string> command{DUNLIN_RUN, "--no-tag", "-n", std::to_string(ranks),
                                   DUNLIN_PERF};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_command(command, {{"DUNLIN_TRANSPORTS", "shm"}});
}

inline std::vector<Json> json_lines(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
  return lines;
}

// Runs a benchmark with --json -, which has to succeed.
inline std::vector<Json> measure(int ranks, std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--json", "-"});
  const CommandResult result = perf(ranks, arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json_lines(result.out);
}

}  // namespace dunlin::testing
