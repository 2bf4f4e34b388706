// The command line of dunlin-logreg.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/svm/generator.h"
#include "apps/teller.h"

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
  int groups = 0;                  // of neighboring ranks; 0: hosts
  std::string transport;           // empty: DUNLIN_TRANSPORTS

  std::string model;  // the file for the model; empty: it is not saved
  TellerOptions output;
};

// Returns nothing when the program has to end with `exit_code`: after --help, or for a wrong
// command line, which has been printed on standard error.
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace dunlin::logreg
