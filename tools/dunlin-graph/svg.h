// Draws a node graph: meshes and tori as grids, other graphs with their nodes on a circle.
#pragma once

#include <string>

#include "collectives/graph/graph.h"
#include "runtime/status.h"

namespace dunlin::tools {

// Larger graphs are refused, as their drawings would show nothing.
inline constexpr int kMaxDrawnNodes = 400;
inline constexpr std::size_t kMaxDrawnEdges = 40'000;

// Returns an SVG document. A pair of edges in both directions is one plain line, a single edge is
// an arrow.
Result<std::string> draw_svg(const collective::Graph& graph);

}  // namespace dunlin::tools
