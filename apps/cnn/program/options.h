// The command line of dunlin-cnn.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/cnn/architecture.h"
#include "apps/cnn/device.h"
#include "apps/cnn/generator.h"
#include "apps/members.h"
#include "apps/teller.h"
#include "collectives/training/method.h"
#include "collectives/training/slowdown.h"

namespace dunlin::cnn {

struct Options {
  // Data: files, or generated.
  std::vector<std::string> train;
  std::vector<std::string> test;
  GeneratorOptions generate;
  bool is_generated = false;
  std::uint64_t test_images = 1000;  // generated ones
  bool is_augmented = false;

  NetworkKind model = NetworkKind::kSmall;
  bool has_batch_norm = false;
  DeviceChoice device;
  int threads = 0;  // 0: the share of this rank of the processors

  double epochs = 10;            // passes over all images, of all workers together
  std::uint64_t iterations = 0;  // of each worker; 0: --epochs decides
  std::optional<double> duration_s;
  std::size_t batch_size = 32;  // of each worker
  double learning_rate = 0.05;
  double decay = 1;        // the learning rate is multiplied by this
  double decay_every = 1;  // every so many epochs
  std::uint64_t seed = 1;
  std::optional<double> target_loss;

  // Complete except for the number of parameters.
  training::MethodOptions method;
  std::vector<training::SlowdownRule> slowdowns;
  std::string transport;  // empty: DUNLIN_TRANSPORTS
  OnPeerLoss on_peer_loss = OnPeerLoss::kFail;
  std::optional<double> deadline_s;

  std::string checkpoint;
  std::uint64_t checkpoint_every = 0;  // iterations; 0: about ten times in a run
  std::string resume;

  std::uint64_t report_every = 0;    // iterations; 0: about forty times in a run
  std::uint64_t evaluate_every = 0;  // iterations; 0: at the end only
  TellerOptions output;
};

// Returns nothing when the program has to end with `exit_code`: after --help, or for a wrong
// command line, which has been printed on standard error.
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace dunlin::cnn
