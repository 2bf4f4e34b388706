#include "tests/tools/perf_command.h"
#include "tests/support/paths.h"

#include <gtest/gtest.h>

namespace dunlin::testing {

CommandResult perf(int ranks, const std::vector<std::string>& arguments, Variables variables) {
  std::vector<std::string> command{program("dunlin-run"), "--no-tag", "-n", std::to_string(ranks),
                                   program("dunlin-perf")};
  command.insert(command.end(), arguments.begin(), arguments.end());
  variables.emplace("DUNLIN_TRANSPORTS", "shm");
  return run_command(command, variables);
}

std::vector<Json> measure(int ranks, std::vector<std::string> arguments,
                          const Variables& variables) {
  arguments.insert(arguments.end(), {"--json"});
  const CommandResult result = perf(ranks, arguments, variables);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json_lines(result.out);
}

}  // namespace dunlin::testing
