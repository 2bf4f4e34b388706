// The command line of dunlin-svm.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/svm/generator.h"
#include "apps/svm/learner.h"
#include "collectives/graph/mixing.h"
#include "collectives/stochastic_reduce.h"

namespace dunlin::svm {

enum class OnPeerLoss { kFail, kContinue };

// A worker that is made slow: each of its exchanges takes `factor` times the computing.
struct Straggler {
  int rank = 0;
  double factor = 1;
};

struct Options {
  // Data: files, or generated.
  std::string train;
  std::string test;
  GeneratorOptions generate;
  bool is_generated = false;
  std::uint64_t test_rows = 4000;  // generated ones

  LearnerOptions learner;  // eta0 0: searched for
  double epochs = 20;      // passes over the whole training set, all workers together

  std::string graph = "complete";
  collective::Weighting weighting = collective::Weighting::kUniform;
  collective::SyncMode sync = collective::SyncMode::kNotifyAck;
  std::uint64_t sync_every = 100;  // examples of a worker between exchanges
  std::uint32_t depth = 2;
  std::string transport;  // empty: DUNLIN_TRANSPORTS
  std::optional<Straggler> straggler;

  std::string checkpoint;
  std::uint64_t checkpoint_every = 0;  // exchanges; 0: about ten times in a run
  std::string resume;

  std::optional<double> target_objective;
  std::uint64_t eval_every = 0;  // exchanges; 0: about forty times in a run
  bool is_deferred = false;      // evaluate when the training is over
  std::string json_out;          // "-": standard output
  bool is_quiet = false;

  OnPeerLoss on_peer_loss = OnPeerLoss::kFail;
  std::optional<double> deadline_s;  // absent: adaptive
};

// Nothing when the program is to end with `exit_code` (--help, or a wrong command line, told on
// standard error).
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace dunlin::svm
