#include "tools/dunlin-graph/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>
#include <vector>

#include "tools/lib/xml.h"

namespace dunlin::tools {
namespace {

using collective::Graph;
using collective::GridShape;

// Lengths in pixels.
constexpr double kNodeRadius = 11;
constexpr double kSpacing = 34;  // between neighbors on the circle
constexpr double kCell = 70;     // between neighbors on a grid
constexpr double kMargin = 60;   // holds the title and the outer edges of a torus
constexpr double kBow = 26;      // how far an edge around a torus bends out

struct Point {
  double x = 0;
  double y = 0;
};

struct Layout {
  double width = 0;
  double height = 0;
  std::vector<Point> nodes;
};

// Places node 0 at the top and the others clockwise.
Layout circle(int nodes) {
  const double radius = std::max(90.0, nodes * kSpacing / (2 * std::numbers::pi));
  const double center = radius + kMargin;
  Layout layout{2 * center, 2 * center, {}};
  for (int i = 0; i < nodes; ++i) {
    const double angle = 2 * std::numbers::pi * i / nodes;
    layout.nodes.push_back({center + radius * std::sin(angle), center - radius * std::cos(angle)});
  }
  return layout;
}

Layout grid(const GridShape& shape) {
  Layout layout{
      2 * kMargin + (shape.columns - 1) * kCell, 2 * kMargin + (shape.rows - 1) * kCell, {}};
  for (int row = 0; row < shape.rows; ++row) {
    for (int column = 0; column < shape.columns; ++column) {
      layout.nodes.push_back({kMargin + column * kCell, kMargin + row * kCell});
    }
  }
  return layout;
}

// Returns the point at `distance` from `from` in the direction of `to`.
Point toward(Point from, Point to, double distance) {
  const double dx = to.x - from.x;
  const double dy = to.y - from.y;
  const double length = std::max(1e-9, std::hypot(dx, dy));
  return {from.x + dx / length * distance, from.y + dy / length * distance};
}

std::string edge_svg(Point from, Point to, bool is_arrow) {
  const Point begin = toward(from, to, kNodeRadius);
  const Point end = toward(to, from, kNodeRadius);
  return fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"{}/>\n", begin.x, begin.y, end.x,
                     end.y, is_arrow ? " marker-end=\"url(#tip)\"" : "");
}

// Draws an edge from one end of a row or column of a torus to the other, bent past the nodes
// between.
std::string around_svg(Point from, Point to) {
  const bool is_row = from.y == to.y;
  const Point bend{is_row ? 0.0 : -2 * kBow, is_row ? -2 * kBow : 0.0};
  const Point middle{(from.x + to.x) / 2 + bend.x, (from.y + to.y) / 2 + bend.y};
  const Point begin = toward(from, middle, kNodeRadius);
  const Point end = toward(to, middle, kNodeRadius);
  return fmt::format("<path d=\"M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}\"/>\n", begin.x, begin.y,
                     middle.x, middle.y, end.x, end.y);
}

bool goes_around(const Graph& graph, int from, int to) {
  if (!graph.grid()) return false;
  const int columns = graph.grid()->columns;
  return std::abs(from % columns - to % columns) > 1 || std::abs(from / columns - to / columns) > 1;
}

std::string edges_svg(const Graph& graph, const Layout& layout) {
  std::string text;
  for (int from = 0; from < graph.nodes(); ++from) {
    for (const int to : graph.out_neighbors(from)) {
      const bool both_ways = graph.has_edge(to, from);
      if (both_ways && to < from) continue;
      const Point begin = layout.nodes[static_cast<std::size_t>(from)];
      const Point end = layout.nodes[static_cast<std::size_t>(to)];
      text +=
          goes_around(graph, from, to) ? around_svg(begin, end) : edge_svg(begin, end, !both_ways);
    }
  }
  return text;
}

std::string nodes_svg(const Layout& layout) {
  std::string text;
  for (std::size_t i = 0; i < layout.nodes.size(); ++i) {
    const Point at = layout.nodes[i];
    text += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        at.x, at.y, kNodeRadius, at.x, at.y + 3.5, i);
  }
  return text;
}

constexpr std::string_view kStyle = R"(<style>
text { font: 10px sans-serif; text-anchor: middle; fill: #fff }
.title { font-size: 14px; text-anchor: start; fill: #222 }
circle { fill: #1f5f8b; stroke: #fff }
path { stroke: #5b6770; stroke-width: 1.2; fill: none }
marker path { stroke: none; fill: #5b6770 }
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7"
 orient="auto"><path d="M0 0.5L8 4L0 7.5z"/></marker></defs>
)";

// Many lines are drawn lighter, so that the structure remains visible.
double line_opacity(const Graph& graph) {
  return std::clamp(12.0 * graph.nodes() / static_cast<double>(graph.edges() + 1), 0.15, 0.9);
}

}  // namespace

Result<std::string> draw_svg(const Graph& graph) {
  if (graph.nodes() > kMaxDrawnNodes || graph.edges() > kMaxDrawnEdges) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("graph '{}' is too large to draw: {} nodes and {} edges; at most {} and "
                    "{} stay legible",
                    graph.spec(), graph.nodes(), graph.edges(), kMaxDrawnNodes, kMaxDrawnEdges));
  }
  const Layout layout = graph.grid() ? grid(*graph.grid()) : circle(graph.nodes());
  const double width = std::max(layout.width, 320.0);  // room for the title
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" height=\"{1:.0f}\">\n{2}"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
      "<text class=\"title\" x=\"10\" y=\"20\">{3}: {4} nodes, {5} edges</text>\n"
      "<g opacity=\"{6:.2f}\">\n{7}</g>\n{8}</svg>\n",
      width, layout.height, kStyle, escape_xml(graph.spec()), graph.nodes(), graph.edges(),
      line_opacity(graph), edges_svg(graph, layout), nodes_svg(layout));
}

}  // namespace dunlin::tools
