// The command line of dunlin-logreg.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/svm/generator.h"

namespace dunlin::logreg {

struct Options {
  // Data: files, or generated.
  std::string train;
  std::string test;
  svm::GeneratorOptions generate;
  bool is_generated = false;
  std::uint64_t test_rows = 4000;  // generated ones

  // The problem, as LIBLINEAR states it.
  double cost = 1;
  double bias = -1;

  double rho = 1;
  bool is_adaptive = false;
  double tron_tolerance = 0.1;
  int iterations = 1000;
  double absolute_tolerance = 1e-4;
  double relative_tolerance = 1e-3;
  bool has_reference = false;
  std::optional<double> target_error;  // implies has_reference

  std::string algorithm = "auto";  // of the all-reduce
  int groups = 0;                  // of neighbouring ranks; 0: hosts
  std::string transport;           // empty: DUNLIN_TRANSPORTS

  std::string json;  // "-": standard output
  std::string model;
  bool is_quiet = false;
};

// Nothing when the program is to end with `exit_code` (--help, or a wrong command line, told on
// standard error).
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace dunlin::logreg
