// Draws a node graph: nodes on a circle, meshes and tori as the grids that they are.
#pragma once

#include <string>

#include "collectives/graph/graph.h"
#include "runtime/status.h"

namespace dunlin::tools {

// Beyond these a drawing shows nothing any more.
inline constexpr int kMaxDrawnNodes = 400;
inline constexpr std::size_t kMaxDrawnEdges = 40'000;

// An SVG document. A pair of nodes with edges both ways is one plain line, a single edge is an
// arrow.
Result<std::string> draw_svg(const collective::Graph& graph);

}  // namespace dunlin::tools
