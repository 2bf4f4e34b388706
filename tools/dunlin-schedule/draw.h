// Draws a schedule with the times that the cost model predicts.
#pragma once

#include <string>
#include <string_view>

#include "collectives/schedule/cost.h"

namespace dunlin::collective {

// Larger schedules are refused, as their pictures would show nothing.
inline constexpr std::size_t kMostDrawnRanks = 64;
inline constexpr std::size_t kMostDrawnSteps = 20'000;

// Returns an SVG document with a row for each rank and time from left to right. Puts are bars with
// an arrow to the place of arrival, in the color of the elements that they move. Reduces are boxes,
// waits are dotted, and the critical path is marked. Every step is a <g data-step="RANK:INDEX">
// whose title describes it.
Result<std::string> draw_svg(std::string_view title, std::span<const Program> programs,
                             const CostReport& report, const CostModel& model);

// Returns Chrome trace JSON for Perfetto, as runtime/trace.h writes it: a process for each rank, an
// event for each step, a flow for each message. It takes schedules of any size.
Result<std::string> draw_trace(std::span<const Program> programs, const CostReport& report,
                               const CostModel& model);

}  // namespace dunlin::collective
