// The command line of dunlin-consensus.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/consensus/algorithm.h"
#include "apps/consensus/push_sum.h"
#include "apps/consensus/school.h"
#include "apps/teller.h"

namespace dunlin::consensus {

enum class Command { kDescent, kPushSum, kFishSchool };

struct Options {
  Command command = Command::kDescent;

  // For the methods that optimize.
  Method method = Method::kDgd;
  ProblemOptions problem;
  double step = 0.2;  // times 1 / L
  double decay = 0;

  std::string graph;
  std::uint64_t iterations = 0;  // with push-sum: rounds; with the school: steps
  std::uint64_t record_every = 1;
  std::optional<double> target_error;

  PushSumOptions push_sum;
  SchoolOptions school;

  std::string transport;  // empty: DUNLIN_TRANSPORTS
  TellerOptions output;
};

// The name of the command: "dgd", "push-sum", ...
std::string name_of(const Options& options);

// Returns nothing when the program has to end with `exit_code`: after --help, or for a wrong
// command line, which has been printed on standard error.
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace dunlin::consensus
