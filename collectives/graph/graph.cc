#include "collectives/graph/graph.h"

#include <fmt/format.h>

#include <algorithm>

namespace dunlin::collective {

Result<Graph> Graph::from_edges(int nodes, std::span<const Edge> edges, std::string spec,
                                std::optional<GridShape> grid) {
  if (nodes < 1 || nodes > kMaxNodes) {
    return Status(Code::kInvalidArgument,
                  fmt::format("graph '{}': {} nodes are outside 1..{}", spec, nodes, kMaxNodes));
  }
  for (const Edge& edge : edges) {
    if (edge.from < 0 || edge.from >= nodes || edge.to < 0 || edge.to >= nodes) {
      return Status(Code::kOutOfRange, fmt::format("graph '{}': edge {} -> {} is outside 0..{}",
                                                   spec, edge.from, edge.to, nodes - 1));
    }
  }
  Graph graph;
  graph.nodes_ = nodes;
  graph.out_ = rows_of(nodes, edges);
  graph.in_ = transpose(graph.out_);
  graph.spec_ = std::move(spec);
  graph.grid_ = grid;
  return graph;
}

bool Graph::has_edge(int from, int to) const {
  const auto row = out_neighbors(from);
  return std::binary_search(row.begin(), row.end(), to);
}

// Counting sort by source, then sorts each row by target and removes duplicates.
Graph::Rows Graph::rows_of(int nodes, std::span<const Edge> edges) {
  const auto count = static_cast<std::size_t>(nodes);
  std::vector<std::size_t> begin(count + 1, 0);
  for (const Edge& edge : edges) {
    if (edge.from != edge.to) ++begin[static_cast<std::size_t>(edge.from) + 1];
  }
  for (std::size_t i = 0; i < count; ++i) begin[i + 1] += begin[i];

  std::vector<int> targets(begin[count]);
  std::vector<std::size_t> next(begin.begin(), begin.end() - 1);
  for (const Edge& edge : edges) {
    if (edge.from != edge.to) targets[next[static_cast<std::size_t>(edge.from)]++] = edge.to;
  }

  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = targets.begin() + static_cast<std::ptrdiff_t>(begin[i]);
    const auto last = targets.begin() + static_cast<std::ptrdiff_t>(next[i]);
    std::sort(first, last);
    const auto end = std::unique(first, last);
    begin[i] = kept;
    kept = static_cast<std::size_t>(
        std::move(first, end, targets.begin() + static_cast<std::ptrdiff_t>(kept)) -
        targets.begin());
  }
  begin[count] = kept;
  targets.resize(kept);
  return {std::move(begin), std::move(targets)};
}

// Rows come out in ascending order because the sources are visited in ascending order.
Graph::Rows Graph::transpose(const Rows& rows) {
  const std::size_t count = rows.begin.size() - 1;
  Rows result{std::vector<std::size_t>(count + 1, 0), std::vector<int>(rows.neighbors.size())};
  for (const int target : rows.neighbors) ++result.begin[static_cast<std::size_t>(target) + 1];
  for (std::size_t i = 0; i < count; ++i) result.begin[i + 1] += result.begin[i];

  std::vector<std::size_t> next(result.begin.begin(), result.begin.end() - 1);
  for (std::size_t i = 0; i < count; ++i) {
    for (const int target : rows.row(static_cast<int>(i))) {
      result.neighbors[next[static_cast<std::size_t>(target)]++] = static_cast<int>(i);
    }
  }
  return result;
}

}  // namespace dunlin::collective
