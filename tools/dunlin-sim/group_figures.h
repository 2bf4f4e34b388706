// The heterogeneity experiment of Ripples / Prague (sections 7.3 and 7.4, Figs. 17 and 19): how
// many iterations per second each method makes, with all workers alike and with one slowed down,
// over those of the parameter server with all alike.
//
// Only times are modelled, of iterations: what the paper calls per-iteration speed-up. Its text
// gives that of two methods only; of others its overall speed-up, which counts as well how many
// iterations a method needs to reach a loss, and isn't comparable.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/status.h"
#include "tools/dunlin-sim/group_methods.h"

namespace dunlin::simulate {

// Speed-ups over the parameter server that the paper's text gives, for 4 nodes of 4 workers.
struct PaperSpeedup {
  std::optional<double> per_iteration;
  double overall = 0;
};

struct GroupPoint {
  Slowdown slowdown;
  GroupMethod method{};
  double iterations_per_s = 0;       // of all workers together
  double over_parameter_server = 0;  // the one without slowdown
  double over_all_reduce = 0;        // under the same slowdown
  std::optional<PaperSpeedup> paper;
};

// Without slowdown, then for each factor one worker, then random ones.
Result<std::vector<GroupPoint>> make_group_figures(const GroupSetting& setting,
                                                   const std::vector<double>& factors);

// A table for people, and rows for programs.
std::string to_text(const std::vector<GroupPoint>& points);
std::vector<nlohmann::ordered_json> to_json(const std::vector<GroupPoint>& points);

}  // namespace dunlin::simulate
