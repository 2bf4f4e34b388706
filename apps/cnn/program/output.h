// Output: what rank 0 tells of a run: JSON lines into a file, and a table on standard output. The
// other ranks' says nothing. Owner thread only.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "apps/cnn/network.h"
#include "apps/cnn/program/options.h"
#include "apps/teller.h"

namespace dunlin::cnn {

// NaN and infinity become null.
using Json = nlohmann::ordered_json;

// Where rank 0's training stands.
struct Moment {
  double time_s = 0;            // of training, without evaluations
  std::uint64_t iteration = 0;  // since the very beginning, resumed runs included
  double epoch = 0;
  double learning_rate = 0;
  double loss = 0;  // running means, of the training
  double accuracy = 0;
  std::uint64_t bytes_sent = 0;  // in this run, as all below
  double wait_s = 0;
  double compute_s = 0;
  double samples_per_s = 0;
};

// What a model makes of the test images.
struct TestResult {
  double loss = 0;
  double accuracy = 0;
};

class Output : public Teller {
 public:
  // Opens the file. `is_teller`: this is rank 0.
  static Result<Output> open(const Options& options, bool is_teller);
  // Of the rank that tells the rest when rank 0 is dead: behind what the file holds.
  static Result<Output> take_over(const Options& options);

  // A "progress" line, and a line of the table.
  Status progress(const Moment& moment);
  // An "evaluation" line.
  Status evaluation(const Moment& moment, const TestResult& result);

 private:
  static Result<Output> open(const Options& options, bool is_teller, bool is_continued);

  bool has_heading_ = false;
};

}  // namespace dunlin::cnn
