// Output: rank 0 reports the run, as JSON lines and as a table on standard output. The other ranks
// print nothing. Owner thread only.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "apps/cnn/program/options.h"
#include "apps/teller.h"

namespace dunlin::cnn {

// NaN and infinity become null.
using Json = nlohmann::ordered_json;

// The state of rank 0's training.
struct Moment {
  double time_s = 0;            // of training, without evaluations
  std::uint64_t iteration = 0;  // since the very beginning, resumed runs included
  double epoch = 0;
  double learning_rate = 0;
  double loss = 0;  // running mean of the training
  double accuracy = 0;
  std::uint64_t bytes_sent = 0;  // in this run, like all fields below
  double wait_s = 0;
  double compute_s = 0;
  double samples_per_s = 0;
};

// The result of a model on the test images.
struct TestResult {
  double loss = 0;
  double accuracy = 0;
};

class Output : public Teller {
 public:
  // Opens the file. `is_teller`: this is rank 0.
  static Result<Output> open(const Options& options, bool is_teller);
  // For the rank that reports the rest when rank 0 is dead. Appends to the file.
  static Result<Output> take_over(const Options& options);

  // Writes a "progress" line, and prints a line of the table.
  Status progress(const Moment& moment);
  // Writes a "members" line, where this rank reports, and prints it: the workers have changed
  // before the next iteration.
  Status members(double time_s, std::uint64_t iteration, const MembersChange& change);
  // Writes an "evaluation" line.
  Status evaluation(const Moment& moment, const TestResult& result);

 private:
  static Result<Output> open(const Options& options, bool is_teller, bool is_continued);

  bool has_heading_ = false;
};

}  // namespace dunlin::cnn
