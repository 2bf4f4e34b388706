// The heterogeneity experiment of Ripples / Prague (sections 7.3 and 7.4, Figs. 17 to 19): each
// method with all workers alike and with one slowed down, beside the parameter server with all
// alike.
//
// Always: iterations per second, over which of the parameter server are the per-iteration speed-up.
// With learning: how many iterations a worker takes until a loss is reached (Fig. 18), and the time
// of that, of which the overall speed-up is made.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/status.h"
#include "tools/dunlin-sim/group_methods.h"

namespace dunlin::simulate {

// What the paper's text says, for 4 nodes of 4 workers: over the parameter server.
struct PaperSpeedup {
  std::optional<double> per_iteration;
  double overall = 0;
  std::optional<double> iterations;  // to the loss: a share of the parameter server's
};

struct GroupPoint {
  Slowdown slowdown;
  GroupMethod method{};
  double iterations_per_s = 0;       // of all workers together
  double over_parameter_server = 0;  // the one without slowdown
  double over_all_reduce = 0;        // under the same slowdown
  std::optional<PaperSpeedup> paper;
  std::optional<LearningRun> learning;
  // Where the loss is reached: over the parameter server without slowdown.
  std::optional<double> iterations_over_server;
  std::optional<double> overall_speedup;
};

// All methods under all slowdowns; the first must be none. kInvalidArgument: the parameter server
// doesn't reach the loss either, so that nothing can be compared with it.
Result<std::vector<GroupPoint>> compare_methods(const GroupSetting& setting,
                                                const std::vector<Slowdown>& slowdowns,
                                                const std::optional<LearningOptions>& learning);
// Without slowdown, then for each factor one worker, then random ones.
Result<std::vector<GroupPoint>> make_group_figures(
    const GroupSetting& setting, const std::vector<double>& factors,
    const std::optional<LearningOptions>& learning = std::nullopt);

// "all alike", "one worker slowed 2x".
std::string describe(const Slowdown& slowdown);
// "300", or "-" where there is none.
std::string describe(const std::optional<double>& value, int digits);
// A table for people, and rows for programs.
std::string to_text(const std::vector<GroupPoint>& points);
std::vector<nlohmann::ordered_json> to_json(const std::vector<GroupPoint>& points);

}  // namespace dunlin::simulate
