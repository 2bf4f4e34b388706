// What the command line of dunlin-schedule says.
#pragma once

#include <string>
#include <vector>

#include "collectives/schedule/algorithm.h"
#include "collectives/schedule/closed_form.h"
#include "collectives/schedule/cost.h"

namespace dunlin::schedule {

// As written. Texts are read by resolve().
struct Words {
  std::string collective = "all-reduce";
  std::string algorithm = "all";
  int ranks = 16;
  int groups = 0;    // 0: as many as squarest() has rows
  int per_host = 0;  // ranks; 0: a group is a host
  int root = 0;
  std::string grid;
  std::string size = "1MiB";
  std::string segment;
  std::size_t element = 4;
  std::string alpha = "2us";
  std::string bandwidth = "6.4GB";
  std::string intra_alpha;      // the same as alpha
  std::string intra_bandwidth;  // the same
  std::string gamma = "0.1ns";
  std::string svg_path;
  std::string trace_path;
  bool json = false;
  bool check_schedules = false;
};

// What one schedule is made and costed by.
struct Options {
  collective::Problem problem;
  std::vector<const collective::Algorithm*> algorithms;
  std::size_t bytes = 0;  // of the vector: those that were asked for, less what is no element
  std::size_t element = 4;
  collective::Grouping grouping;
  collective::Grouping hosts;  // whose ranks are near one another
  collective::Grid grid{0, 0};
  std::size_t segment = collective::Shape::kUnlimited;  // elements
  collective::LinkCost within;
  collective::LinkCost between;
  double gamma = 0;
  Words words;

  bool has_one_link_class() const {
    return within.alpha == between.alpha && within.beta == between.beta;
  }
  collective::CostModel model() const {
    return collective::CostModel::grouped(hosts, within, between, gamma);
  }
};

Result<Options> resolve(const Words& words);
// A latency and a bandwidth as written; "unlimited" costs nothing per byte.
Result<collective::LinkCost> parse_link(const std::string& alpha, const std::string& bandwidth);

// The programs of all ranks.
Result<std::vector<collective::Program>> make_schedule(const Options& options,
                                                       const collective::Algorithm& algorithm);

// The formula's case, where there is a formula for these options.
Result<double> formula(const Options& options, const collective::Algorithm& algorithm);

}  // namespace dunlin::schedule
