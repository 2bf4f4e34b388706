// The options of dunlin-schedule.
#pragma once

#include <string>
#include <vector>

#include "collectives/schedule/algorithm.h"
#include "collectives/schedule/closed_form.h"
#include "collectives/schedule/cost.h"

namespace dunlin::schedule {

// Values as the command line has them. resolve() reads the texts.
struct Words {
  std::string collective = "all-reduce";
  std::string algorithm = "all";
  int ranks = 16;
  int groups = 0;    // 0: the rows of Grid::squarest()
  int per_host = 0;  // ranks; 0: a group is a host
  int root = 0;
  std::string grid;
  std::string size = "1MiB";
  std::string segment;
  std::size_t element = 4;
  std::string alpha = "2us";
  std::string bandwidth = "6.4GB";
  std::string intra_alpha;      // empty: as alpha
  std::string intra_bandwidth;  // empty: as bandwidth
  std::string gamma = "0.1ns";
  std::string svg_path;
  std::string trace_path;
  std::string json;  // as tools::Output::open() takes it
  bool check_schedules = false;
};

// What makes a schedule and its cost.
struct Options {
  collective::Problem problem;
  std::vector<const collective::Algorithm*> algorithms;
  std::vector<std::string> left_out;  // "algorithm: why it can't have this shape", with `all`
  std::size_t bytes = 0;  // of the vector: the requested size, rounded down to whole elements
  std::size_t element = 4;
  collective::Grouping grouping;
  collective::Grouping hosts;  // the ranks of each have the links `within`
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
// Reads a latency and a bandwidth. "unlimited" costs nothing per byte.
Result<collective::LinkCost> parse_link(const std::string& alpha, const std::string& bandwidth);

// Generates the programs of all ranks.
Result<std::vector<collective::Program>> make_schedule(const Options& options,
                                                       const collective::Algorithm& algorithm);

// Returns the time by formula; kNotFound when no formula covers these options.
Result<double> formula(const Options& options, const collective::Algorithm& algorithm);

}  // namespace dunlin::schedule
