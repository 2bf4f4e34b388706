// The drawer: a schedule as a picture, in the times that the cost model predicts.
#pragma once

#include <string>
#include <string_view>

#include "collectives/schedule/cost.h"

namespace dunlin::collective {

// Beyond these a picture shows nothing any more.
inline constexpr std::size_t kMostDrawnRanks = 64;
inline constexpr std::size_t kMostDrawnSteps = 20'000;

// An SVG document: a row per rank, time from left to right. Puts are bars with an arrow to where
// they arrive, in the colour of the elements that they move; reduces are boxes; waits are dotted;
// the critical path is marked. Every step is one <g data-step="RANK:INDEX"> that says what it is.
Result<std::string> draw_svg(std::string_view title, std::span<const Program> programs,
                             const CostReport& report, const CostModel& model);

// Chrome trace JSON as runtime/trace.h writes it, for Perfetto: a process per rank, an event per
// step, a flow per message. For any size.
Result<std::string> draw_trace(std::span<const Program> programs, const CostReport& report,
                               const CostModel& model);

}  // namespace dunlin::collective
