// Parser: declares dunlin-perf's command line for CLI11. Only options.cc and option_collectives.cc
// include this header.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/command_line/command_line.h"
#include "tools/dunlin-perf/options/options.h"

namespace dunlin::perf {

// The headings of the options.
inline constexpr const char* kMeasurement = "The measurement";
inline constexpr const char* kThisSide = "This process";

// Values as the command line has them, before they become Options.
struct Words {
  std::vector<std::size_t> sizes;
  std::size_t smallest = 8;
  std::size_t largest = 4 << 20;
  double seconds = 0;
  std::string memory = "host";
  std::string straggler;
  double compute_us = 0;
  double progress_every_us = 10;
  double step_ms = 3;
  std::vector<double> late_by_ms{0, 3, 6, 12, 30};
  std::string listen;
  std::string connect;
};

class Parser {
 public:
  explicit Parser(Options& options) : options_(options) {}

  void declare(CLI::App& app);
  // Turns what was parsed into Options. Throws a CLI::ParseError when values do not fit together.
  void finish(const CLI::App& app);

 private:
  CLI::App* add(CLI::App& app, Bench bench, const char* help);
  void declare_puts(CLI::App& app);
  void declare_accesses(CLI::App& app);
  void declare_meetings(CLI::App& app);
  void declare_own(CLI::App& app);
  void declare_connecting(CLI::App& app);
  void declare_measuring(CLI::App& app, Bench bench);
  void declare_sizes(CLI::App& app);
  void declare_sweep(CLI::App& app);
  void declare_checks(CLI::App& app);
  void declare_histogram(CLI::App& app);
  void declare_depth(CLI::App& app, const char* names, const char* help);
  void declare_collectives(CLI::App& app);
  void declare_neighbors(CLI::App& app);
  void declare_groups(CLI::App& app);
  void declare_float_type(CLI::App& app);
  void declare_memory(CLI::App& app, Bench bench);
  void declare_straggler_ring(CLI::App& app);
  void declare_tune(CLI::App& app);
  CLI::App* add_collective(CLI::App& app, Bench bench, const char* help);
  void declare_consistency(CLI::App& app);
  void read_start(const CLI::App& app, const CLI::App* chosen);
  void note_named(const CLI::App& chosen);

  Options& options_;
  Words words_;
};

}  // namespace dunlin::perf
