// The command line of dunlin-cnn.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/cnn/architecture.h"
#include "apps/cnn/generator.h"
#include "apps/cnn/network.h"
#include "apps/training/method.h"
#include "apps/training/slowdown.h"

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
  DeviceKind device = DeviceKind::kAuto;
  int threads = 0;  // 0: this rank's share of the processors

  double epochs = 10;            // passes over all images, of all workers together
  std::uint64_t iterations = 0;  // of each worker; 0: as the epochs say
  std::optional<double> duration_s;
  std::size_t batch_size = 32;  // of each worker
  double learning_rate = 0.05;
  double decay = 1;        // the learning rate is multiplied by this
  double decay_every = 1;  // every so many epochs
  std::uint64_t seed = 1;
  std::optional<double> target_loss;

  // But for the number of parameters.
  training::MethodOptions method;
  std::vector<training::SlowdownRule> slowdowns;
  std::string transport;  // empty: DUNLIN_TRANSPORTS
  std::optional<double> deadline_s;

  std::string checkpoint;
  std::uint64_t checkpoint_every = 0;  // iterations; 0: about ten times in a run
  std::string resume;

  std::uint64_t report_every = 0;    // iterations; 0: about forty times in a run
  std::uint64_t evaluate_every = 0;  // iterations; 0: in the end only
  std::string json_out;              // "-": standard output
  bool is_quiet = false;
};

// Nothing when the program is to end with `exit_code` (--help, or a wrong command line, told on
// standard error).
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace dunlin::cnn
