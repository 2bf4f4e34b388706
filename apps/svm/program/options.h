// The command line of dunlin-svm.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/members.h"
#include "apps/svm/generator.h"
#include "apps/svm/learner.h"
#include "apps/svm/shard_skew.h"
#include "apps/teller.h"
#include "collectives/graph/mixing.h"
#include "collectives/stochastic/stochastic_reduce.h"

namespace dunlin::svm {

// A worker that is made slow: it takes `factor` times as long to compute.
struct Straggler {
  int rank = 0;
  double factor = 1;
};

// A model of 1 GiB. More features come from a stray index in a file.
inline constexpr std::uint32_t kMostFeatures = (std::uint32_t{1} << 28) - 2;

struct Options {
  // Data: files, or generated.
  std::string train;
  std::string test;
  GeneratorOptions generate;
  bool is_generated = false;
  std::uint64_t test_rows = 4000;  // generated ones
  ShardSkew shard_skew;

  // Prediction, instead of training.
  std::string predict;    // the file of the model; empty: train
  std::string predicted;  // the file for the predicted labels; empty: they are not written

  LearnerOptions learner;    // eta0 0: searched for
  bool has_average = false;  // report and save the average of a rank's models (average.h)
  double epochs = 20;        // passes over the whole training set, all workers together

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
  std::string model;             // the file for the trained model; empty: it is not saved
  TellerOptions output;

  OnPeerLoss on_peer_loss = OnPeerLoss::kFail;
  std::optional<double> deadline_s;  // absent: adaptive
};

// Returns nothing when the program has to end with `exit_code`: after --help, or for a wrong
// command line, which has been printed on standard error.
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace dunlin::svm
