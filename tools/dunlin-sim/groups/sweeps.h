// The sweeps of `dunlin-sim groups` in addition to the slowdown: over the time of the computation,
// the number of workers, and the length of sections (Ripples / Prague, figure 16).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/dunlin-sim/groups/figures.h"

namespace dunlin::simulate {

// Finds by bisection the time of a computation with which all-reduce makes `ratio` times the
// iterations of the parameter server, with equal workers. The paper does not say this time. Returns
// kInvalidArgument, with the possible ratios, when there is no such time on this cluster.
Result<Duration> calibrate_compute(GroupSetting setting, double ratio);

// All methods on clusters of other sizes, with equal workers and with a slow one.
struct ScaleBlock {
  int workers = 0;
  std::vector<GroupPoint> points;
};
std::string to_text(const std::vector<ScaleBlock>& blocks);

// How the length of sections changes the iterations to a loss, with equal workers.
struct SectionPoint {
  GroupMethod method{};
  std::uint64_t section_length = 0;
  LearningRun run;
};
Result<std::vector<SectionPoint>> make_section_figure(GroupSetting setting,
                                                      const std::vector<std::uint64_t>& lengths,
                                                      const LearningOptions& learning);
std::string to_text(const std::vector<SectionPoint>& points);
std::vector<nlohmann::ordered_json> to_json(const std::vector<SectionPoint>& points);

}  // namespace dunlin::simulate
