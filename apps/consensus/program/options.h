// The command line of dunlin-consensus.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/consensus/algorithm.h"
#include "apps/consensus/push_sum.h"
#include "apps/consensus/school.h"

namespace dunlin::consensus {

enum class Command { kDescent, kPushSum, kFishSchool };

struct Options {
  Command command = Command::kDescent;

  // Of the methods that optimise.
  Method method = Method::kDgd;
  ProblemOptions problem;
  double step = 0.2;  // times 1 / L
  double decay = 0;

  std::string graph;
  std::uint64_t iterations = 0;  // of push-sum: rounds; of the school: steps
  std::uint64_t record_every = 1;
  std::optional<double> target_error;

  PushSumOptions push_sum;
  SchoolOptions school;

  std::string transport;  // empty: DUNLIN_TRANSPORTS
  std::string json;       // "-": standard output
  bool is_quiet = false;
};

// "dgd", "push-sum", ...: what the command line names.
std::string name_of(const Options& options);

// Nothing when the program is to end with `exit_code` (--help, or a wrong command line, told on
// standard error).
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace dunlin::consensus
