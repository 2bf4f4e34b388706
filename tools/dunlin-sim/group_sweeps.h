// What `dunlin-sim groups` varies beside the slowdown: the computation's time, the number of
// workers, and the length of sections (Ripples / Prague, Fig. 16).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/dunlin-sim/group_figures.h"

namespace dunlin::simulate {

// The computation's time with which all-reduce makes `ratio` times the iterations of the parameter
// server, all workers alike: what the paper doesn't say of its machines. Found by bisection.
// kInvalidArgument: none does on this cluster; says which ratios there are.
Result<Duration> calibrate_compute(GroupSetting setting, double ratio);

// All methods on clusters of other sizes, all alike and with a slow worker.
struct ScaleBlock {
  int workers = 0;
  std::vector<GroupPoint> points;
};
std::string to_text(const std::vector<ScaleBlock>& blocks);

// How synchronizing less often changes the way to a loss, all workers alike.
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
