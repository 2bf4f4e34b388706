#include "tools/dunlin-schedule/options.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/units.h"
#include "tools/lib/grid.h"

namespace dunlin::schedule {
namespace {

using collective::Algorithm;
using collective::Grid;
using collective::Grouping;
using collective::LinkCost;

Status choose_algorithms(Options& options) {
  const std::string& name = options.words.algorithm;
  if (name != "all") {
    DUNLIN_ASSIGN(const Algorithm* const algorithm,
                  collective::find_algorithm(options.problem.collective, name));
    options.algorithms = {algorithm};
    return Status::ok();
  }
  collective::Shape shape;
  shape.groups = &options.grouping;
  shape.grid = options.grid;
  for (const Algorithm& algorithm : collective::algorithms()) {
    if (algorithm.collective != options.problem.collective) continue;
    // A grid that suits one algorithm need not suit another, which arranges other nodes.
    const Status suits = algorithm.check(options.problem, shape);
    if (suits.is_ok()) {
      options.algorithms.push_back(&algorithm);
    } else {
      options.left_out.push_back(fmt::format("{}: {}", algorithm.name, suits.message()));
    }
  }
  return Status::ok();
}

}  // namespace

Result<LinkCost> parse_link(const std::string& alpha, const std::string& bandwidth) {
  LinkCost link;
  DUNLIN_ASSIGN(link.alpha, parse_seconds(alpha));
  DUNLIN_ASSIGN(const double bytes_per_second, parse_bandwidth(bandwidth));
  link.beta = bytes_per_second == 0 ? 0 : 1 / bytes_per_second;
  return link;
}

Result<Options> resolve(const Words& words) {
  Options options;
  options.words = words;
  DUNLIN_ASSIGN(const auto kind, collective::parse_collective(words.collective));
  DUNLIN_ASSIGN(const std::size_t size, parse_size(words.size));
  const bool is_barrier = kind == collective::Collective::kBarrier;
  options.element = words.element;
  options.problem = {kind, words.ranks, is_barrier ? 0 : size / words.element, words.root};
  options.bytes = options.problem.count * words.element;
  const int groups = words.groups > 0 ? words.groups : Grid::squarest(words.ranks).rows;
  DUNLIN_ASSIGN(options.grouping, Grouping::even(words.ranks, groups));
  options.hosts = options.grouping;
  if (words.per_host > 0) {
    std::vector<int> host_of;
    for (int rank = 0; rank < words.ranks; ++rank) host_of.push_back(rank / words.per_host);
    options.hosts = Grouping::of(host_of);
  }
  if (!words.grid.empty()) {
    DUNLIN_ASSIGN(options.grid, tools::parse_grid(words.grid));
  }
  if (!words.segment.empty()) {
    DUNLIN_ASSIGN(const std::size_t segment, parse_size(words.segment));
    options.segment = std::max<std::size_t>(1, segment / words.element);
  }
  DUNLIN_ASSIGN(options.between, parse_link(words.alpha, words.bandwidth));
  DUNLIN_ASSIGN(
      options.within,
      parse_link(words.intra_alpha.empty() ? words.alpha : words.intra_alpha,
                 words.intra_bandwidth.empty() ? words.bandwidth : words.intra_bandwidth));
  DUNLIN_ASSIGN(options.gamma, parse_seconds(words.gamma));
  DUNLIN_TRY(choose_algorithms(options));
  return options;
}

Result<std::vector<collective::Program>> make_schedule(const Options& options,
                                                       const Algorithm& algorithm) {
  collective::Shape shape;
  shape.groups = &options.grouping;
  shape.grid = options.grid;
  shape.segment = options.segment;
  std::vector<collective::Program> programs;
  for (int rank = 0; rank < options.problem.size; ++rank) {
    DUNLIN_ASSIGN(auto program, collective::generate(algorithm, options.problem, shape, rank));
    programs.push_back(std::move(program));
  }
  return programs;
}

Result<double> formula(const Options& options, const Algorithm& algorithm) {
  const bool has_one =
      algorithm.collective == collective::Collective::kAllReduce &&
      options.segment == collective::Shape::kUnlimited &&
      ((algorithm.needs_groups && options.words.per_host == 0) || options.has_one_link_class());
  if (!has_one) return Status(Code::kNotFound, "no formula");
  collective::ClosedFormCase of;
  of.ranks = options.problem.size;
  of.groups = options.grouping.groups();
  of.grid = options.grid;
  of.bytes = static_cast<double>(options.bytes);
  of.within = options.within;
  of.between = options.between;
  of.gamma = options.gamma;
  return collective::closed_form(algorithm.name, of);
}

}  // namespace dunlin::schedule
