// The heterogeneity experiment of Ripples / Prague (sections 7.3 and 7.4, figures 17 to 19): each
// method with equal workers and with one slow worker, compared with the parameter server with equal
// workers.
//
// The iterations per second, divided by those of the parameter server, are the per-iteration
// speed-up. With learning, the experiment also counts the iterations of a worker until a loss is
// reached (figure 18). Their time gives the overall speed-up.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/status.h"
#include "tools/dunlin-sim/groups/methods.h"

namespace dunlin::simulate {

// The figures in the text of the paper, for 4 hosts of 4 workers, relative to the parameter server.
struct PaperSpeedup {
  std::optional<double> per_iteration;
  double overall = 0;
  std::optional<double> iterations;  // to the loss, relative to the parameter server
};

struct GroupPoint {
  Slowdown slowdown;
  GroupMethod method{};
  double iterations_per_s = 0;       // of all workers together
  double over_parameter_server = 0;  // relative to the one without slowdown
  double over_all_reduce = 0;        // relative to all-reduce under the same slowdown
  std::optional<PaperSpeedup> paper;
  std::optional<LearningRun> learning;
  // If the loss is reached: relative to the parameter server without slowdown.
  std::optional<double> iterations_over_server;
  std::optional<double> overall_speedup;
};

// Measures all methods under all slowdowns, the first of which must be none. Returns
// kInvalidArgument when the parameter server does not reach the loss, as nothing can be compared
// with it then.
Result<std::vector<GroupPoint>> compare_methods(const GroupSetting& setting,
                                                const std::vector<Slowdown>& slowdowns,
                                                const std::optional<LearningOptions>& learning);
// Measures without slowdown, then for each factor with one slow worker and with random ones.
Result<std::vector<GroupPoint>> make_group_figures(
    const GroupSetting& setting, const std::vector<double>& factors,
    const std::optional<LearningOptions>& learning = std::nullopt);

// "all alike", "one worker slowed 2x".
std::string describe(const Slowdown& slowdown);
// "300", or "-" without a value.
std::string describe(const std::optional<double>& value, int digits);
// A table as text, and the rows of the JSON lines.
std::string to_text(const std::vector<GroupPoint>& points);
std::vector<nlohmann::ordered_json> to_json(const std::vector<GroupPoint>& points);

}  // namespace dunlin::simulate
